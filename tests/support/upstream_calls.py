"""The functions of llama.cpp, GGML and llguidance that pyquant names, found in its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from llguidance import LLMatcher

from tests.support import ROOT
from tests.support.vendored import patched_llama

HEADERS = ("include", "src", "ggml/include", "ggml/src", "ggml/src/ggml-cpu")
# Structures, which C++ declares by the same words.
TYPES = {
    "ggml_backend_buffer_type_t", "llama_batch", "llama_context", "llama_model", "llama_model_base",
    "llama_vocab",
}  # fmt: skip
NAME = re.compile(r"\b(?:llama|ggml|gguf)_\w+")
COMMENT = re.compile(r'//[^\n]*|"[^"\n]*"')
LLGUIDANCE = ROOT / "pyquant" / "generation" / "grammar" / "llguidance_engine.py"


def calls() -> set[str]:
    """Name every function that the source names: to call it, or to hand it on."""
    declared = _declared()
    found: set[str] = set()
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in {".cpp", ".h"}:
            found.update(NAME.findall(COMMENT.sub("", path.read_text())))
    for path in (ROOT / "pyquant").rglob("*.py"):
        found.update(re.findall(r"(?:llama|_lib)\.((?:llama|ggml)_\w+)", path.read_text()))
        found.update(re.findall(r'_address_of\("(\w+)"\)', path.read_text()))
    return (found & declared - TYPES) | _of_llguidance()


def _declared() -> set[str]:
    """Name all functions and constructors in upstream's headers."""
    names: set[str] = set()
    for folder in HEADERS:
        for path in (patched_llama() / folder).glob("*.h"):
            names.update(re.findall(r"\b((?:llama|ggml|gguf)_\w+) *\(", path.read_text()))
    return names


def _of_llguidance() -> set[str]:
    source = LLGUIDANCE.read_text()
    classes = set(re.findall(r"\b(LL\w+)\(", source)) - {"LLGuidanceGrammar", "LLGuidanceState"}
    methods = {name for name in re.findall(r"\.(\w+)\(", source) if name in vars(LLMatcher)}
    return classes | methods


def listed(page: Path) -> list[str]:
    """Give the names on a page: `a_{b,c}` are two, and a star stands for any letters."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("- `")]
    return [name for line in lines for pattern in _before_colon(line) for name in _expand(pattern)]


def _before_colon(line: str) -> list[str]:
    return re.findall(r"`([^`]+)`", line.partition(":")[0])


def _expand(pattern: str) -> Iterator[str]:
    begin, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    choices, _, end = rest.partition("}")
    for choice in choices.split(","):
        yield from (begin + choice + tail for tail in _expand(end))


def matches(name: str, patterns: list[str]) -> bool:
    """Say whether a name is among patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
