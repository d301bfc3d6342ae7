"""TOML and JSON, damaged as text and as values: what people and other programs write by hand."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.trial.damage import damage
from tests.trial.mutations import Damage, Mutation

WORDS = [
    "0", "-1", "1", "0.5", "1e308", "-1e-308", "inf", "nan", "9" * 30, "true", '""', '"x"', "[]", "{}",
    "null", '"q4_0"', '"ecsq"', '"../../etc/passwd"', '"\\u0000"', "[[[]]]", "1979-05-27", "=", "[", "]",
    '"', "\n", "[" * 70, "{a=" * 70, "a.b.c=1\n",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1, 2**63, -(2**63), 10**400, 0.5, 1e308, math.nan, "", "x", "../../etc/passwd",
    "two\nlines", "\ud800", [], {}, [None], {"x": 1}, [0, 1], ["x", "x"],
]  # fmt: skip
TOKEN = re.compile(r'"[^"]*"|[\w.+-]+|[\[\]{}=,\n]')


class TextMutation(Mutation):
    """A file of text; every third case is damaged as bytes."""

    def damage_of(self, source: Path) -> Damage:
        return damage_text


class JsonMutation(Mutation):
    """A JSON file; half of the cases are JSON still, with other values."""

    def damage_of(self, source: Path) -> Damage:
        return damage_json


class JsonLinesMutation(Mutation):
    """A file of JSON lines: a line is damaged as JSON, or the whole as text."""

    def damage_of(self, source: Path) -> Damage:
        return damage_json_lines


def damage_json_lines(content: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        return damage_text(content, rng)
    lines = content.splitlines()
    chosen = rng.integers(len(lines))
    lines[chosen] = damage_json(lines[chosen], rng)
    return b"\n".join(lines)


def damage_text(content: bytes, rng: np.random.Generator, words: list[str] = WORDS) -> bytes:
    """Puts other words into a text, repeats and removes some. words: what may come in."""
    if rng.random() < 0.3:
        return damage(content, rng)
    text = content.decode()
    for _ in range(rng.integers(1, 4)):
        spans = [match.span() for match in TOKEN.finditer(text)]
        if not spans:
            break
        (begin, end), (first, last) = (spans[rng.integers(len(spans))] for _ in range(2))
        word = (
            words[rng.integers(len(words))]
            if rng.random() < 0.6
            else text[first:last] * int(rng.integers(0, 3))
        )
        text = text[:begin] + word + text[end:]
    return text.encode()


def damage_json(content: bytes, rng: np.random.Generator) -> bytes:
    """Changes, removes and doubles values, deep within."""
    if rng.random() < 0.4:
        return damage_text(content, rng)
    tree = json.loads(content)
    for _ in range(rng.integers(1, 4)):
        _change(tree, rng)
    return json.dumps(tree).encode()


def _change(tree: Any, rng: np.random.Generator) -> None:
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        if not isinstance(tree[key], dict | list) or rng.random() < 0.15:
            break
        tree = tree[key]
    if rng.random() < 0.2:
        del tree[key]
    else:
        tree[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
