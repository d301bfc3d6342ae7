"""The table of `pyquant compare`: its width, its names, and what it says of differences."""

from __future__ import annotations

from typing import Any

import pytest

from pyquant.cli.compare_table import print_comparisons, short_names

BASE = "models/SmolLM2-135M-Instruct-f16.gguf"
LONG, SHORT = "models/SmolLM2-135M-Instruct-Q4_K_M-imatrix.gguf", "other/gptq.gguf"


def candidate(model: str, mean: float) -> dict[str, Any]:
    return {
        "model": model,
        "file": model,
        "cache_type_k": "f16",
        "cache_type_v": "f16",
        "size": 105_500_000,
        "bits": 6.27,
        "kld": {"mean": mean, "error": 0.00044, "percentiles": {"99": 0.28123, "99.9": 1.2345}, "max": 17.81},
        "same_top": {"share": 0.9061},
        "ratio": 1.0241,
        "dominated_by": None,
    }


def comparison(name: str, *, apart: bool) -> dict[str, Any]:
    base = {"model": BASE, "size": 270_900_000, "bits": 16.01, "perplexity": 13.8, "perplexity_error": 0.55}
    return {
        "name": name,
        "n_tokens": 10_240,
        "n_chunks": 40,
        "n_ctx": 512,
        "base": base,
        "noise_floor": {"kld": 1.2e-7, "kld_max": 3e-6},
        "candidates": [candidate(LONG, 0.0599), candidate(SHORT, 0.0232)],
        "paired": [{"model": LONG, "other": SHORT, "difference": 0.0367, "error": 0.0012, "apart": apart}],
    }


def test_every_line_fits_into_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparisons([comparison("wiki", apart=True), comparison("code", apart=False)])
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 100
    heads = [line.split("  ") for line in lines if "mean KLD" in line]
    assert len(heads) == 2
    rows = [" ".join(line.split()) for line in lines if "105.5 MB" in line]
    assert rows[1] == "gptq 105.5 MB 6.27 0.02320 ± 0.00044 0.281 1.23 17.8 90.61 +2.41"
    differences = [line for line in lines if line.startswith("KLD of ")]
    assert differences[0].endswith("less that of gptq: 0.03670 ± 0.00120")
    assert differences[1] == differences[0] + ": not told apart"
    assert sum(line.rstrip().endswith(", noise floor 1e-06") for line in lines) == 2


def test_files_of_one_name_are_named_by_their_paths() -> None:
    names = short_names(["a/m.gguf", "b/m.gguf", "b/n.pqz"])
    assert names == {"a/m.gguf": "a/m.gguf", "b/m.gguf": "b/m.gguf", "b/n.pqz": "n.pqz"}
