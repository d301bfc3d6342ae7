"""Jinja as Transformers gives it to chat templates, with an end to what a template may take.

Templates come with models, from anybody, and a few characters of one can ask for a loop of years or for all
memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, ClassVar

from jinja2 import TemplateError, nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_STEPS = 1_000_000  # rounds of loops, calls, and hundreds of items or characters that they handle
LONGEST = 1 << 24  # characters of a text, items of a list
MOST_BITS = 1024  # of an integer
WIDEST = 10_000  # what a text may be padded to
_SIZED = (str, list, tuple, dict, range)
_PADS = {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "tojson", "zfill"}
_FORMATS = {"%", "format", "format_map"}
_WIDTH = re.compile(r"\d{5}")
_ROUNDS, _VALUE = "pyquant_rounds", "pyquant_value"  # filters around what loops go through, and what is set


class _Generation(Extension):
    """The tag `generation`: around what an assistant says, for whoever trains on it."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> nodes.Node:
        scope = nodes.Scope(lineno=next(parser.stream).lineno)
        scope.body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return scope


class _Bounded(ImmutableSandboxedEnvironment):
    """A sandbox in which a template takes bounded time and memory; for one conversation."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self._n_steps = 0
        del self.globals["lipsum"]
        self.filters["tojson"] = _tojson
        self.filters = {name: self._counting(name, its) for name, its in self.filters.items()}
        self.filters[_ROUNDS] = pass_context(lambda _, through: self._rounds(through))
        self.filters[_VALUE] = pass_context(lambda _, value: self._count(value))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in template.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, _ROUNDS, loop.lineno)
        for assigned in template.find_all(nodes.Assign):
            assigned.node = _filtered(assigned.node, _VALUE, assigned.lineno)
        for block in template.find_all(nodes.AssignBlock):
            block.filter = _filtered(block.filter, _VALUE, block.lineno)
        return template

    def call(self, context: Context, its: Any, *given: Any, **named: Any) -> Any:
        _check(getattr(its, "__name__", ""), getattr(its, "__self__", None), given, named)
        return self._count(super().call(context, its, *given, **named))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check(operator, left, (right,), {})
        return self._count(super().call_binop(context, operator, left, right))

    def _counting(self, name: str, its: Callable[..., Any]) -> Callable[..., Any]:
        at = 1 if hasattr(its, "jinja_pass_arg") else 0  # behind what Jinja gives beside the value

        @wraps(its)  # with what Jinja notes of a filter
        def counting(*given: Any, **named: Any) -> Any:
            value, more = given[at] if len(given) > at else None, given[at + 1 :]
            _check(name, value, more, named)
            self._count(value)
            return self._count(its(*given, **named))

        return counting

    def _rounds(self, through: Iterable[Any]) -> Iterator[Any]:
        for each in through:
            self._count(None)
            yield each

    def _count(self, its: Any) -> Any:
        size = len(its) if isinstance(its, _SIZED) else 0
        if isinstance(its, int):
            _check_bits(its.bit_length())
        if size > LONGEST:
            raise TemplateError(f"makes more than {LONGEST:,} characters or items")
        self._n_steps += 1 + size // 100
        if self._n_steps > MOST_STEPS:
            raise TemplateError(f"takes more than {MOST_STEPS:,} steps")
        return its


def _check(what: str, its: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse a call, filter or operator whose result would be too large to be made."""
    if what in _FORMATS and isinstance(its, str) and _WIDTH.search(its):
        raise TemplateError("formats by a width of five digits or more")
    numbers = [each for each in (*given, *named.values()) if isinstance(each, int | float)]
    if what in _PADS and any(abs(number) > WIDEST for number in numbers):
        raise TemplateError(f"pads to more than {WIDEST:,}")
    if what == "**" and isinstance(its, int) and isinstance(given[0], int):
        _check_bits(its.bit_length() * given[0])
    if what == "*":
        (other,) = given
        for several, times in ((its, other), (other, its)):
            if isinstance(several, _SIZED) and isinstance(times, int) and len(several) * times > LONGEST:
                raise TemplateError(f"makes more than {LONGEST:,} characters or items")


def _check_bits(n_bits: int) -> None:
    if n_bits > MOST_BITS:
        raise TemplateError(f"makes a number of more than {MOST_BITS} bits")


def _filtered(node: nodes.Node | None, name: str, line: int) -> nodes.Filter:
    assert node is None or isinstance(node, nodes.Expr)
    return nodes.Filter(node, name, [], [], None, None, lineno=line)


def environment() -> ImmutableSandboxedEnvironment:
    """Make what a chat template is compiled in: a sandbox, with what Transformers adds to Jinja."""
    made = _Bounded()
    made.globals["raise_exception"] = _refuse
    return made


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise TemplateError(message)
