"""Find terminals whose lazy repetition Python's re may end elsewhere than at the first possible place.

The LALR(1) engine ends such a terminal as soon as it can. re tries fewest repetitions first, and goes back:
that is the same place where everything before the repetition can be read in one way, it repeats single
characters, and only parts of one length follow it, or more such repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from pyquant.generation.grammar.lr.characters import Range, characters_of

SINGLE = ("LITERAL", "NOT_LITERAL", "IN", "ANY")  # what matches one character
ALL = [(0, 0x10FFFF)]

Part = tuple[str, Any]  # an operation of Python's reader, and its arguments


def may_end_later(items: Any) -> bool:
    """Say whether re may end a terminal with a lazy repetition later than the LALR(1) engine does."""
    parts = list(_parts(items))
    if len(parts) == 1 and parts[0][0] == "BRANCH":
        return _alternatives_may([list(_parts(each)) for each in parts[0][1][1]])
    lazy = [i for i, (name, _) in enumerate(parts) if name == "MIN_REPEAT"]
    if not lazy:
        return any(map(_has_lazy, parts))
    behind = parts[lazy[0] :]
    if not all(_is_fixed(part) or _is_lazy_of_one(part) for part in behind):
        return True
    return any(
        not _is_fixed(part) and not _is_forced(part, parts[i + 1 :])
        for i, part in enumerate(parts[: lazy[0]])
    )


def _alternatives_may(alternatives: list[list[Part]]) -> bool:
    """Do as `may_end_later` for a choice: each alternative ends alone, and its first character tells it."""
    if not any(map(_has_lazy, (part for parts in alternatives for part in parts))):
        return False
    for parts in alternatives:
        if not parts or parts[0][0] == "MIN_REPEAT":
            return True
        if not all(_is_fixed(part) or _is_lazy_of_one(part) for part in parts):
            return True
    return any(_overlap(_first(one[0]), _first(other[0])) for one, other in combinations(alternatives, 2))


def _parts(items: Any) -> Iterator[Part]:
    """Give operations and their arguments; of groups and repetitions of one count, what is in them."""
    for operation, argument in items:
        name = str(operation)
        if name == "SUBPATTERN":
            yield from _parts(argument[3])
        elif name == "MAX_REPEAT" and argument[0] == argument[1] and argument[0] <= 64:
            for _ in range(argument[0]):
                yield from _parts(argument[2])
        else:
            yield name, argument


def _has_lazy(part: Part) -> bool:
    name, argument = part
    if name == "BRANCH":
        return any(_has_lazy(inner) for items in argument[1] for inner in _parts(items))
    return name == "MIN_REPEAT" or (name == "MAX_REPEAT" and any(map(_has_lazy, _parts(argument[2]))))


def _is_fixed(part: Part) -> bool:
    """Say whether a part matches texts of one length alone, in one way."""
    name, argument = part
    if name != "BRANCH" or _has_lazy(part):
        return name in SINGLE
    lengths = {len(list(_parts(items))) for items in argument[1]}
    return len(lengths) == 1 and all(_is_fixed(inner) for items in argument[1] for inner in _parts(items))


def _is_lazy_of_one(part: Part) -> bool:
    name, argument = part
    if name != "MIN_REPEAT" or argument[2].getwidth() != (1, 1):
        return False
    return not any(map(_has_lazy, _parts(argument[2])))


def _is_forced(part: Part, following: list[Part]) -> bool:
    """Say whether a greedy repetition can be read in one way: none of its characters may follow it."""
    name, argument = part
    items = list(_parts(argument[2])) if name == "MAX_REPEAT" else []
    if len(items) != 1 or items[0][0] not in SINGLE:
        return False
    taken = _first(items[0])
    for after in following:
        if _overlap(taken, _first(after)):
            return False
        if _is_fixed(after) or after[1][0] > 0:
            return True
    return False


def _first(part: Part) -> list[Range]:
    """Characters that a part may begin with, in any case; all of parts that are not looked into."""
    name, argument = part
    if name in SINGLE:
        return characters_of(name, argument, re.IGNORECASE | re.DOTALL)
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        items = list(_parts(argument[2]))
        return _first(items[0]) if len(items) == 1 else ALL
    return ALL


def _overlap(some: list[Range], others: list[Range]) -> bool:
    return any(a <= d and c <= b for a, b in some for c, d in others)
