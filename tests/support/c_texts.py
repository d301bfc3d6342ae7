"""Texts in C that others wrote, as the preprocessor leaves them, and the grammar of C for llguidance."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyquant.generation.grammar.grammar import read_grammar

EXAMPLES = Path("/usr/share/doc/zlib1g-dev/examples")
HEADERS = "assert ctype errno float limits locale math setjmp signal stdarg stddef stdio stdlib string time"
OPTIONS = ["-std=c90", "-U__GNUC__", "-D__builtin_va_list=va_list", "-D_Float128=double"]


def preprocess(file: str, text: str = "") -> str:
    """Return a text without # lines, in the C of the standard alone; skip the test where that cannot be."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("skipped: no C compiler preprocesses here")
    done = subprocess.run(
        [compiler, "-E", "-P", *OPTIONS, file], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"skipped: {file} does not go through the preprocessor: {done.stderr[:200]}")
    return done.stdout


def with_names_as_types() -> str:
    """Return the grammar `c` with NAME for names of types: the language of `ansi_c`, without imports."""
    text = read_grammar(Path("c")).text
    text = text.replace(" | TYPE_NAME", " | NAME", 1).replace("any_name: NAME | TYPE_NAME", "any_name: NAME")
    text = re.sub(r"(?m)^TYPE_NAME.*\n", "", text)
    return text.replace("direct_declarator: any_name", "direct_declarator: NAME")
