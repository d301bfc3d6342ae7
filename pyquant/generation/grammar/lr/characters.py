"""Sets of characters, and the bytes that UTF-8 writes them in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

LAST = 0x10FFFF
Range = tuple[int, int]  # first and last code point, or byte


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the same characters as ranges in order that do not touch."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def complement(ranges: Iterable[Range]) -> list[Range]:
    """Return all other characters."""
    result, begin = [], 0
    for first, last in union(ranges):
        if begin < first:
            result.append((begin, first - 1))
        begin = last + 1
    return result + ([(begin, LAST)] if begin <= LAST else [])


def both_cases(ranges: Iterable[Range]) -> list[Range]:
    """Add the other case of each letter; of a letter of ASCII, the one in ASCII alone."""
    result = list(ranges)
    for first, last in list(result):
        for code in range(first, min(last, 0xFFFF) + 1):
            for other in (chr(code).lower(), chr(code).upper()):
                if len(other) == 1 and (code < 128) == (ord(other) < 128):
                    result.append((ord(other), ord(other)))
    return union(result)


@lru_cache
def category(name: str) -> tuple[Range, ...]:
    r"""Return the characters of \d, \s or \w, as Python's re has them."""
    if name.isupper():
        return tuple(complement(category(name.lower())))
    matches: Callable[[str], object] = re.compile(rf"\{name}").match
    return tuple(union((code, code) for code in range(LAST + 1) if matches(chr(code))))


def utf8(first: int, last: int) -> list[list[Range]]:
    """Return the bytes of a range of code points: alternatives, each a range for every byte.

    Surrogates have no bytes.
    """
    if first <= 0xDFFF and last >= 0xD800:
        below = utf8(first, 0xD7FF) if first < 0xD800 else []
        return below + (utf8(0xE000, last) if last > 0xDFFF else [])
    for end in (0x7F, 0x7FF, 0xFFFF):
        if first <= end < last:
            return utf8(first, end) + utf8(end + 1, last)
    for n_bytes in range(1, len(chr(last).encode())):
        low = (1 << 6 * n_bytes) - 1  # the bits in the last bytes
        if first & ~low != last & ~low:
            if first & low:
                return utf8(first, first | low) + utf8((first | low) + 1, last)
            if last & low != low:
                return utf8(first, (last & ~low) - 1) + utf8(last & ~low, last)
    return [list(zip(chr(first).encode(), chr(last).encode(), strict=True))]


def characters_of(operation: str, argument: Any, flags: int) -> list[Range]:
    """Return the characters that an operation of Python's reader of expressions matches, one of them."""
    if operation == "ANY":
        return complement([] if flags & re.DOTALL else [(10, 10)])
    if operation == "NOT_LITERAL":
        return complement(_cases([(argument, argument)], flags))
    if operation == "LITERAL":
        return _cases([(argument, argument)], flags)
    negated = str(argument[0][0]) == "NEGATE"
    ranges: list[Range] = []
    for kind, value in argument[negated:]:
        if str(kind) == "CATEGORY":
            ranges += _category(str(value), flags)
        else:
            ranges += _cases([value if str(kind) == "RANGE" else (value, value)], flags)
    return complement(ranges) if negated else union(ranges)


def _cases(ranges: list[Range], flags: int) -> list[Range]:
    return both_cases(ranges) if flags & re.IGNORECASE else ranges


def _category(name: str, flags: int) -> list[Range]:
    letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rsplit("_", 1)[1]]
    ranges = list(category(letter))
    if flags & re.ASCII:
        ranges = [(first, min(last, 127)) for first, last in ranges if first < 128]
    return complement(ranges) if "_NOT_" in name else ranges
