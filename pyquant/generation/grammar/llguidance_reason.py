"""What llguidance says of a grammar that it refuses, in a line: it shows the grammar as it was given it."""

from __future__ import annotations

import re

from pyquant.generation.grammar.grammar import Language

_PLACE = re.compile(r"(?:at )?(?P<line>\d+)\((?P<column>\d+)\): (?:failed to compile JSON schema: )?")
_BAD_REGEX = re.compile(
    r"(?P<which>.*?)(?: \(in regex\))?: regex parse error:\n(?P<shown>.*)\nerror: (?P<why>[^\n]+)", re.DOTALL
)
_OTHER_DOCUMENT = re.compile(r"Resource '(?P<name>[^']*)' is not present in a registry")
_AS_REWRITTEN = re.compile(r":? \(?(SearchRegex )?/.*/\)?$")  # an expression that nobody wrote
INDENT = 4  # of an expression that is shown, with carets below
ONE_OF = "Enable 'coerce_one_of' option to approximate oneOf with anyOf"
TO_ANY_OF = '"x-guidance": {"coerce_one_of": true} in the schema takes it as anyOf'


def one_line(message: str, language: Language) -> str:
    """Return the reason, with its place in the grammar that the user wrote."""
    place = _PLACE.match(message)
    where = f"line {place['line']}, column {place['column']}: " if place and language is Language.LARK else ""
    rest = message[place.end() :] if place else message
    if bad := _BAD_REGEX.match(rest if ": regex" in rest else f": {rest}"):
        which = f"{bad['which']}: " if language is Language.LARK and bad["which"] else ""
        column = next(
            (line.index("^") for line in bad["shown"].split("\n") if set(line) == {" ", "^"}), INDENT
        )
        return f"{where}{which}column {column - INDENT + 1}: {bad['why']}"
    if other := _OTHER_DOCUMENT.search(rest):
        return (
            f"$ref: {other['name']} is another document, and none is fetched; "
            f"copy it into $defs, and refer to #/$defs/NAME"
        )
    rest = rest.split("\n")[0].replace(ONE_OF, TO_ANY_OF)
    if language is Language.JSON_SCHEMA:
        rest = _AS_REWRITTEN.sub("", rest).rstrip(": ")
    return where + rest
