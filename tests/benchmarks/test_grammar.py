"""Texts along which masks are measured keep to their grammars, and the table has what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.grammar import CASES, PUBLISHED, TEXTS, Case, mask_table
from benchmarks.grammar_added import NEXT, REFUSED, logits_like, mean
from tests.support.grammars import refusal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_texts_keep_to_their_grammars(case: Case) -> None:
    text = (TEXTS / case.text).read_text("utf-8").strip()
    assert not refusal(case.grammar.removesuffix(".lark"), text)


def test_the_table_has_what_was_measured() -> None:
    measured = {
        "engine": "lr",
        "vocabulary": "Gemma 4, 262 k",
        "grammar": "C",
        "mask_us": {"mean": 12.4, "p50": 11, "p99": 1300, "max": 2000},
        "prepare_s": 1.25,
        "load_s": 0.0131,
        "peak_mb": 40.2,
    }
    refused = {"engine": "llguidance", "vocabulary": "Gemma 4, 262 k", "grammar": "SQL", "refused": "why"}
    table = mask_table([{"engine": ".txt, 2024", "mask_us": PUBLISHED[0]}, measured, refused]).splitlines()
    assert table[2] == "| CodeGemma, 256 k | C | .txt, 2024 | 540 | 580 |  | 1,130 |  |  |  |"
    assert table[3] == "| Gemma 4, 262 k | C | lr | 12 | 11 | 1,300 | 2,000 | 1.2 s | 13 ms | 40 MB |"
    assert table[-1] == "Gemma 4, 262 k, SQL, llguidance: why"


@pytest.mark.parametrize("n_allowed", [40, 20, 1])
def test_made_up_logits_refuse_as_much_as_they_should(n_allowed: int) -> None:
    random = np.random.default_rng(0).normal(0, 3, 40).astype(np.float32)
    allowed = np.arange(40) < n_allowed
    p = np.exp(logits_like(random, allowed, 0)[0].astype(float))
    assert p[~allowed].sum() == pytest.approx(0 if n_allowed == 40 else REFUSED, rel=1e-4)
    assert p[0] == pytest.approx(NEXT, rel=1e-4)


def test_the_mean_of_what_grammars_add_weighs_each_row_alike() -> None:
    rows = [{"command": str(us), "seconds": us / 1e6, "added_us": us} for us in (4.0, 8.0, 18.0)]
    assert mean(rows) == {"command": "mean of 3", "seconds": pytest.approx(1e-5), "added_us": 10.0}
