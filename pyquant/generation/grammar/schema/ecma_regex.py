"""Regular expressions of ECMA-262, the dialect of JSON schemas, in the syntax of Rust's crate `regex`.

Both have the same groups, alternatives and repetitions. They differ in what `.`, `\\d`, `\\w` and `\\s`
match, in escapes, and in classes, where Rust has operators that are plain characters in ECMA-262.
"""

from __future__ import annotations

import re

DIGITS, WORDS = "0-9", "0-9A-Z_a-z"
BLANKS = r"\t\n\x0B\x0C\r \xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
LINE_ENDS = r"\n\r\x{2028}\x{2029}"
CLASSES = {"d": DIGITS, "w": WORDS, "s": BLANKS}
CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
EVERY, NOTHING = r"[\x00-\x{10FFFF}]", r"[^\x00-\x{10FFFF}]"

_REPETITION = re.compile(r"(?:[*+?]|\{(?P<least>\d+)(?:,(?P<most>\d*))?\})")
_HEX = "[0-9a-fA-F]"
_UNICODE = re.compile(
    rf"u(?:\{{({_HEX}{{1,6}})\}}|([dD][89abAB]{_HEX}{{2}})\\u([dD][c-fC-F]{_HEX}{{2}})|({_HEX}{{4}}))"
)
_PROPERTY = re.compile(r"[pP]\{[\w=]+\}")
_LOOK = re.compile(r"\(\?<?[=!]")
_GROUP = re.compile(r"\((?:\?(?::|<[\w$]+>))?")
IGNORE_CASE = "(?i)"  # no ECMA-262, but at the beginning of many schemas' patterns


class BadPattern(ValueError):
    """A pattern that is not taken; its first argument says at which column, counted from 1, and why."""


def to_rust(pattern: str) -> str:
    """Return an expression of ECMA-262 in Rust's syntax. Raises BadPattern."""
    return _Reader(pattern).read()


class _Reader:
    """Goes through a pattern from left to right; each part is rewritten by itself."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0
        self._open: list[int] = []  # where groups begin that nothing has closed

    def read(self) -> str:
        out: list[str] = []
        if self._text.startswith(IGNORE_CASE):
            out.append(IGNORE_CASE)
            self._at = len(IGNORE_CASE)
        repeatable = False
        while self._at < len(self._text):
            if repetition := _REPETITION.match(self._text, self._at):
                if not repeatable:
                    raise self._bad("nothing to repeat")
                if repetition["most"] and int(repetition["most"]) < int(repetition["least"]):
                    raise self._bad("less at most than at least")
                out.append(repetition[0])
                self._at = repetition.end()
                self._at += self._text.startswith("?", self._at)  # lazy or not: the same texts
                repeatable = False
                continue
            part, repeatable = self._part()
            out.append(part)
        if self._open:
            self._at = self._open[-1]
            raise self._bad("a group that nothing closes")
        return "".join(out)

    def _part(self) -> tuple[str, bool]:
        """Return the next part in Rust's syntax, and whether it may be repeated."""
        begin, character = self._at, self._text[self._at]
        if _LOOK.match(self._text, begin):
            raise self._bad("look-around is not taken")
        if group := _GROUP.match(self._text, begin):
            self._at = group.end()
            if self._text.startswith("?", self._at):
                raise self._bad("expected (?: or (?<name>")
            self._open.append(begin)
            return "(?:", False
        if character == ")":
            if not self._open:
                raise self._bad("it closes no group")
            self._open.pop()
        self._at += 1
        if character == "[":
            return self._class(), True
        if character == "\\":
            return self._escape(), True
        if character == ".":
            return f"[^{LINE_ENDS}]", True
        if character in "^$|":
            return character, False
        return (")", True) if character == ")" else (_literal(character), True)

    def _escape(self) -> str:
        if self._text.startswith(("b", "B"), self._at):
            raise self._bad(f"\\{self._text[self._at]} is not taken: it looks around")
        if re.match(r"[1-9k]", self._text[self._at :]):
            raise self._bad("references to groups are not taken")
        one = self._one_escaped()
        return one if len(one) > 1 else _literal(one)

    def _one_escaped(self) -> str:
        """Return the character of an escape, behind its backslash, or a class with its brackets."""
        text, begin = self._text, self._at
        if begin == len(text):
            raise self._bad("\\ at the end")
        letter = text[begin]
        self._at += 1
        if letter in CLASSES:
            return f"[{CLASSES[letter]}]"
        if letter.lower() in CLASSES:
            return f"[^{CLASSES[letter.lower()]}]"
        if letter in CONTROLS:
            return CONTROLS[letter]
        if letter == "0" and not text[self._at : self._at + 1].isdigit():
            return "\0"
        if control := re.compile(r"c([A-Za-z])").match(text, begin):
            self._at = control.end()
            return chr(ord(control[1]) % 32)
        if code := re.compile(r"x([0-9a-fA-F]{2})").match(text, begin):
            self._at = code.end()
            return chr(int(code[1], 16))
        if code := _UNICODE.match(text, begin):
            self._at = code.end()
            return self._code_point(code)
        if named := _PROPERTY.match(text, begin):
            self._at = named.end()
            return f"[\\{named[0]}]"
        if letter.isalnum():
            self._at = begin
            raise self._bad(f"\\{letter} is no escape of ECMA-262")
        return letter

    def _code_point(self, code: re.Match[str]) -> str:
        if code[2]:
            return (bytes.fromhex(code[2]) + bytes.fromhex(code[3])).decode("utf-16-be")
        number = int(code[1] or code[4], 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise self._bad("no character has this code")
        return chr(number)

    def _class(self) -> str:
        """Return a class, behind its opening bracket."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        items: list[str] = []
        while not self._text.startswith("]", self._at):
            first = self._class_item()
            if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in (
                "]",
                "",
            ):
                self._at += 1
                last = self._class_item()
                if len(first) > 1 or len(last) > 1:  # a class and a hyphen, or the other way round
                    items += [_literal(first), r"\x{2D}", _literal(last)]
                    continue
                if first > last:
                    raise self._bad("a range that ends before it begins")
                items.append(f"{_literal(first)}-{_literal(last)}")
                continue
            items.append(_literal(first))
        self._at += 1
        if not items:
            return EVERY if negated else NOTHING
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _class_item(self) -> str:
        if self._at >= len(self._text):
            raise self._bad("a class that nothing closes")
        character = self._text[self._at]
        self._at += 1
        if character != "\\":
            return character
        if self._text.startswith("b", self._at):
            self._at += 1
            return "\b"
        return self._one_escaped()

    def _bad(self, why: str) -> BadPattern:
        return BadPattern(f"column {self._at + 1}: {why}")


def _literal(text: str) -> str:
    """Return a character as one that means itself anywhere; a class in its brackets as it is."""
    return text if len(text) > 1 or (text.isalnum() and text.isascii()) else f"\\x{{{ord(text):X}}}"
