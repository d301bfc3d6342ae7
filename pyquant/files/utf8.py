"""Texts as UTF-8: not every text that JSON or a command line can give has one."""

from __future__ import annotations

from pyquant.errors import TextError


def utf8(text: str, name: str) -> bytes:
    """Return a text as UTF-8. Raises TextError, which names the first character that has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name}: character {error.start + 1} is no Unicode: half of a surrogate pair, or a byte of no "
            f"UTF-8; leave it out"
        ) from None
