"""The page of calls into llama.cpp, GGML and llguidance lists them all, and no others."""

from __future__ import annotations

from tests.support import ROOT
from tests.support.upstream_calls import calls, listed, matches

PAGE = ROOT / "docs" / "upstream_calls.md"


def test_every_call_is_listed() -> None:
    patterns = listed(PAGE)
    assert not [name for name in sorted(calls()) if not matches(name, patterns)]


def test_every_pattern_is_of_a_call() -> None:
    names = calls()
    assert not [pattern for pattern in listed(PAGE) if not any(matches(name, [pattern]) for name in names)]


def test_calls_are_found() -> None:
    """A function is named before a parenthesis, as a deleter, by its address, or through ctypes."""
    assert calls() >= {
        "llama_decode",
        "llama_quant_free",
        "llama_vocab_is_eog",
        "llama_memory_seq_rm",
        "rollback",
    }
