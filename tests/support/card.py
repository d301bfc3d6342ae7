"""Results as compare, accuracy and speed print them, of models that were not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MADE_BY = {"pyquant": "9.8.7", "cpu": "a CPU"}


def compare(names: Sequence[str]) -> dict[str, Any]:
    """What `pyquant compare base.gguf NAMES --text wiki.txt --json` might print, what a card reads of it."""
    candidates = [
        {
            "model": name,
            "perplexity": 20.0 + i,
            "perplexity_error": 0.5,
            "ratio": 1.0 + i / 20,
            "ratio_error": 0.01,
            "kld": {
                "mean": 0.04 / (i + 1), "error": 0.001, "max": 1.5, "percentiles": {"99": 0.3, "99.9": 0.9},
            },
            "same_top": {"share": 0.9, "error": 0.01},
        }
        for i, name in enumerate(names)
    ]  # fmt: skip
    return {
        "schema": "pyquant.compare/1",
        "name": "wiki.txt",
        "text": "texts/wiki.txt",
        "text_sha256": "a" * 64,
        "n_ctx": 512,
        "n_chunks": 20,
        "n_tokens": 5100,
        "base": {"model": "base.gguf", "perplexity": 19.5, "perplexity_error": 0.5},
        "candidates": candidates,
        "made_by": MADE_BY,
    }


def accuracy(names: Sequence[str]) -> dict[str, Any]:
    """What `pyquant accuracy base.gguf NAMES --hellaswag hellaswag.txt --json` might print."""
    own = {"accuracy": 0.45, "error": 0.02}
    flips = {"right_to_wrong": 3, "wrong_to_right": 1, "wrong_to_wrong": 2, "p": 0.625}
    file = {
        "format": "hellaswag",
        "file": "hellaswag.txt",
        "sha256": "b" * 64,
        "n_in_file": 100,
        "n_questions": 40,
        "chance": 0.25,
        "base": {"model": "base.gguf", **own},
        "candidates": [{"model": name, **own, **flips} for name in names],
    }
    return {"schema": "pyquant.accuracy/1", "files": [file], "made_by": MADE_BY}


def speed(names: Sequence[str]) -> dict[str, Any]:
    """What `pyquant speed NAMES --json` might print."""
    rate = {"tokens_per_second": 100.0, "low": 90.0, "high": 110.0, "rounds": [90.0, 100.0, 110.0]}
    return {
        "schema": "pyquant.speed/1",
        "n_prompt": 512,
        "n_generate": 128,
        "n_threads": 2,
        "models": [{"model": name, "prompt": rate, "generation": rate} for name in names],
        "made_by": MADE_BY,
    }
