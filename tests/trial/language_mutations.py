"""Grammars, schemas and chat templates, damaged with words of their own languages."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from tests.trial.mutations import Damage, Mutation, Use
from tests.trial.samples import Samples
from tests.trial.text_mutations import WORDS, damage_json, damage_text

LARK = [
    "?", "*", "+", "~2..1", "~0", "~1..999999", "|", "(", ")", "[", "]", ":", "->x", "start", "value",
    "NUMBER",
    "/(?=x)/", "/a*?/", "/(/", "/[^\\x00-\\xff]/", "/é{2,}/i", '""', '"\\x"', "%import common.CNAME\n",
    "%import .nothing.X\n", "%ignore /a*/\n", "%declare X\n", "%override start: X\n", "x{y}: y\n",
    "\nX.-1: /x/\n",
    "\nstart: start\n", "\nvalue: \n", '"a".."é"', "%llguidance {}\n", "<|end|>", "start[max_tokens=1]",
    "{",
]  # fmt: skip
GBNF = [
    "?", "*", "+", "{2,1}", "{0}", "{,}", "{99999}", "{0,4294967296}", "|", "(", ")", "[", "]", "[^]",
    "[z-a]", "::=",
    "root", "value", '""', '"\\x"', '"\\u12"', '"\\U0010FFFF"', "[\\x80-\\xFF]", ".", "!", "<[2]>",
    "!<[2]>",
    "<[99999999999]>", "</s>", "\nroot ::= root\n", "\nvalue ::= value value | \n", "((((", "# x\n",
    "\nx ::= y z\n",
]  # fmt: skip
REGEX = [
    "*", "+", "?", "{2,1}", "{0}", "{,3}", "{99999}", "{0,4294967296}", "|", "(", ")", "[", "]", "[^",
    "[z-a]", "\\", "^", "$",
    "(?=x)", "(?!x)", "(?<=x)", "\\1", "(?P<a>x)", "\\p{L}", "\\p{Nothing}", "\\b", "\\x{110000}", "\\u12",
    "(?i)", "(?-u)\\xff",
    "[[:alpha:]]", "[a&&b]", ".*?", "((a*)*)*", "é", "\n",
]  # fmt: skip
JINJA = [
    "{%", "%}", "{{", "}}", "{#", "#}", "{%- for m in messages -%}", "{% endfor %}", "{% if x %}",
    "{% endif %}", "{% else %}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "{% set x = 1 %}", "{% block b %}{% endblock %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as x %}", "{% generation %}", "{% break %}",
    "{% raw %}",
    "messages", "message", "tools", "loop.last", "loop(1)", "|tojson", "|trim", "|length",
    "|selectattr('x')", "|items",
    "|map(attribute='role')|list", "|int", "|sort", "|batch(0)", "|slice(0)", "|round(-1)", "|indent(-1)",
    "|format(1)", "range(9)",
    "range(99999)", "range(999999999)", "'x' * 999999999", "9 ** 9 ** 9", "'%999999999d' % 1",
    "'x'|center(999999999)", "namespace(x=1)",
    "raise_exception('x')", "strftime_now('%Y')", "strftime_now('%')", "''.__class__", "[]['append']",
    "messages[99]",
    "messages[0].content[::0]", "'\\ud800'", "1 // 0", "none.x", "~", "|", "lipsum()", "cycler()",
    "joiner()", "dict(a=1)",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
]  # fmt: skip
# Of JSON schemas: keywords, and what may stand behind any of them.
KEYWORDS: dict[str, list[Any]] = {
    "type": ["string", "object", ["null", "number"], "nothing"], "enum": [[], [1, "x", None]],
    "const": [{}, 1e400],
    "pattern": ["^a+$", "(", "\\d{3}", "(?=x)", "[\\w-z]", "\\cA", "(?<n>x)\\k<n>"],
    "format": ["date", "email", "uuid", "ipv6", "nothing"],
    "minLength": [0, -1, 5, 10**6, 2.5], "maxLength": [0, -1, 5, 10**9], "minimum": [0, -1e308, 10**30],
    "maximum": [0, 1e308, 0.1],
    "exclusiveMinimum": [1, True], "exclusiveMaximum": [1], "multipleOf": [0, -1, 0.01, 1e-300],
    "minItems": [0, 3, 10**6],
    "maxItems": [0, 2, 10**9], "uniqueItems": [True], "prefixItems": [[{}], {}],
    "items": [{}, True, False, [{}]],
    "properties": [{}, {"x": {"$ref": "#"}}, []], "patternProperties": [{"^a": {}}, {"(": {}}],
    "additionalProperties": [True, False, {}],
    "required": [["nothing"], "x", [1]], "minProperties": [1, -1], "maxProperties": [0],
    "propertyNames": [{"pattern": "^a"}],
    "anyOf": [[], [{}], [{"$ref": "#"}]], "oneOf": [[{}, {}]],
    "allOf": [[{"type": "string"}, {"type": "number"}]], "not": [{}],
    "if": [{}], "$ref": ["#", "#/$defs/x", "#/$defs/none", "http://example.org/x", "#/%25", "/etc/passwd"],
    "$defs": [{}, 1], "$id": ["x"],
    "dependentRequired": [{"x": ["y"]}], "contains": [{}],
    "$schema": ["http://json-schema.org/draft-04/schema#", 1], "x-guidance": [{}, 1],
}  # fmt: skip


class LanguageMutation(Mutation):
    """A text, damaged with words of its language as well as those of any."""

    def __init__(
        self,
        name: str,
        what: str,
        one_in: float,
        sample: str,
        use: Callable[[Samples], Use],
        words: list[str],
    ) -> None:
        super().__init__(name, what, one_in, sample, use)
        self._words = [*words, *WORDS]

    def damage_of(self, source: Path) -> Damage:
        return lambda content, rng: damage_text(content, rng, self._words)


class SchemaMutation(Mutation):
    """A JSON schema: half of the cases have other keywords, in any of its parts."""

    def damage_of(self, source: Path) -> Damage:
        def change(content: bytes, rng: np.random.Generator) -> bytes:
            if rng.random() < 0.5:
                return damage_json(content, rng)
            schema = json.loads(content)
            for _ in range(rng.integers(1, 5)):
                keyword = str(rng.choice(list(KEYWORDS)))
                values = KEYWORDS[keyword]
                parts = list(_parts(schema))
                parts[rng.integers(len(parts))][keyword] = deepcopy(values[rng.integers(len(values))])
            return json.dumps(schema).encode()

        return change


def _parts(schema: object) -> list[dict]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    own = [schema] if isinstance(schema, dict) else []
    return [*own, *(part for value in inner for part in _parts(value))]
