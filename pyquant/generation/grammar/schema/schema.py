"""Write a JSON schema so that llguidance reads it as JSON Schema has it, or refuse it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeGuard

from pyquant.errors import GrammarError
from pyquant.generation.grammar.grammar import Grammar
from pyquant.generation.grammar.schema.ecma_regex import BadPattern, to_rust
from pyquant.generation.grammar.schema.formats import FORMATS, OTHERS

LEAST, MOST = (
    -9 * 10**18,
    2**63 - 1,
)  # below, llguidance works out a range for ever; above, it counts no further
WRITABLE = f"numbers from {LEAST} to {MOST}"
_NUMBER = re.compile(r"\d{4301}")  # by default, Python reads 4,300 digits
LEAST_FRACTION = 1e-30  # llguidance nests a group for each digit, up to 250
DRAFTS = ("http://", "https://")  # what their names begin with
DIGITS = 15  # of a fraction; it reads others as one beside them
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
VALUES = ("const", "enum")
DATA = (*VALUES, "default", "examples", "required", "x-guidance")  # they hold no schemas
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # schemas by any name


def for_llguidance(grammar: Grammar) -> Any:
    """Read a schema, and write its patterns in llguidance's dialect and its formats as patterns.

    Raises
    ------
    GrammarError
        It is no JSON, a pattern is none of ECMA-262 or looks around, or a number is larger than llguidance
        counts. The message names the place.
    """
    return _Writer(grammar.name).schema(_read(grammar), "")


def _read(grammar: Grammar) -> Any:
    def refuse(constant: str) -> None:
        raise GrammarError(f"{grammar.name}: {constant} is no JSON; write a number")

    try:
        read = json.loads(grammar.text, parse_constant=refuse)
        json.dumps(read, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise GrammarError(
            f"{grammar.name}: \\u{half:04x} is half of a character; write both halves, or leave it out"
        ) from None
    except json.JSONDecodeError as error:
        raise GrammarError(
            f"{grammar.name}: line {error.lineno}, column {error.colno}: is no JSON: {error.msg}"
        ) from None
    except ValueError:  # Python reads no whole number of so many digits
        number = _NUMBER.search(grammar.text)
        line = grammar.text.count("\n", 0, number.start()) + 1 if number else 1
        raise GrammarError(
            f"{grammar.name}: line {line}: a number of thousands of digits; {WRITABLE} may be there"
        ) from None
    draft = read.get("$schema", DRAFTS[0]) if isinstance(read, dict) else DRAFTS[0]
    if not (isinstance(draft, str) and draft.startswith(DRAFTS)):
        raise GrammarError(f"{grammar.name}: /$schema: {draft!r} names no draft of JSON Schema; leave it out")
    return read


class _Writer:
    """Rewrites a schema part by part; places are JSON pointers."""

    def __init__(self, name: str) -> None:
        self._name = name

    def schema(self, node: Any, place: str) -> Any:
        if isinstance(node, list):
            return [self.schema(item, f"{place}/{i}") for i, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        self._check_numbers(node, place)
        written: dict[str, Any] = {}
        for key, value in node.items():
            inner = f"{place}/{_escaped(key)}"
            if key == "pattern" and isinstance(value, str):
                written[key] = self._pattern(value, inner)
            elif key in NAMED and isinstance(value, dict):
                rename = self._pattern if key == "patternProperties" else _same
                parts: dict[str, Any] = {}
                for name, part in value.items():
                    own, renamed = self.schema(part, f"{inner}/{_escaped(name)}"), rename(name, inner)
                    # Two patterns may become one, whose properties have to satisfy both.
                    parts[renamed] = {"allOf": [parts[renamed], own]} if renamed in parts else own
                written[key] = parts
            else:
                written[key] = value if key in DATA else self.schema(value, inner)
        _with_bounds_beside(written)
        return _with_format(written)

    def _pattern(self, pattern: str, place: str) -> str:
        try:
            return to_rust(pattern)
        except BadPattern as error:
            raise GrammarError(f"{self._name}: {place}: {json.dumps(pattern)}: {error}") from None

    def _check_numbers(self, node: dict[str, Any], place: str) -> None:
        for key in (*BOUNDS, *VALUES):
            for number in _numbers(node.get(key)):
                if not LEAST <= number <= MOST:
                    raise GrammarError(
                        f"{self._name}: {place}/{key}: {number}: {WRITABLE} may be there; "
                        f"give one of these, or leave it out"
                    )
                if isinstance(number, int) and number != MOST and int(float(number)) != number:
                    raise GrammarError(
                        f"{self._name}: {place}/{key}: {number}: above 2^53 llguidance counts in steps; "
                        f"give {int(float(number))}, or leave it out"
                    )
                if isinstance(number, float) and float(f"{number:.{DIGITS}g}") != number:
                    raise GrammarError(
                        f"{self._name}: {place}/{key}: {number}: llguidance reads {DIGITS} digits of a "
                        f"fraction; give {number:.{DIGITS}g}, or leave it out"
                    )


def _with_bounds_beside(node: dict[str, Any]) -> None:
    """Write an exclusive bound that is a whole number as the fraction beside it.

    With a fraction as the other bound llguidance takes the whole number itself.
    """
    for key, inclusive, sign in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = node.get(key)
        if not _is_number(bound) or node.get("type") == "integer":
            continue
        other = node.get(inclusive)
        if _is_number(other) and sign * other > sign * bound:
            continue
        if 0 <= sign * bound < 2**40 and bound == int(bound) and (bound or sign > 0):
            del node[key]
            last = 10.0 ** (len(str(abs(int(bound)))) - DIGITS)
            node[inclusive] = bound + sign * last if bound else LEAST_FRACTION


def _with_format(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a pattern in place of a format, and without one that has no meaning."""
    name = node.get("format")
    if not isinstance(name, str) or name in OTHERS:
        return node
    rest = {key: value for key, value in node.items() if key != "format"}
    pattern = FORMATS.get(name)
    if pattern is None:
        return rest
    if "pattern" not in rest:
        return rest | {"pattern": pattern}
    all_of = rest.get("allOf", [])
    return rest | {"allOf": [*all_of, {"pattern": pattern}]} if isinstance(all_of, list) else node


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Any) -> Iterator[int | float]:
    if _is_number(value):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _same(name: str, _place: str) -> str:
    return name
