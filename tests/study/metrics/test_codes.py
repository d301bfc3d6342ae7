"""Codes: the numbers of a row are of all its codes, whatever tables its tensors have."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.formulas import RUN_BINS
from pyquant.inspect.code_counts import CodeCounts
from pyquant.models.codebook import Codebook
from pyquant.study.metrics.codes import Codes
from pyquant.study.results.read import Measurement, RowResults


def table_codes(first_value: int, counts: list[int], runs: list[int]) -> CodeCounts:
    book = Codebook.of_table(np.array([first_value, 0, 40, 80], np.int8))
    lengths = np.zeros(RUN_BINS, np.uint64)
    lengths[: len(runs)] = runs
    return CodeCounts("a tensor", book, np.array(counts, np.uint64), lengths)


def test_a_row_has_the_codes_of_all_its_tables() -> None:
    totals = [table_codes(-40, [1, 1, 1, 1], [1]), table_codes(-80, [6, 6, 0, 0], [1, 1, 1])]
    result = {"totals": [total.to_json() for total in totals]}
    measured = {"codes": [Measurement("key", result, {}, None)]}
    cells = Codes().cells(RowResults("table", "table", "table", None, {}, measured), 0)
    assert cells == {
        "n_codes": 16,
        "entropy": pytest.approx((4 * 2 + 12 * 1) / 16),
        "zero_codes": pytest.approx((1 + 6) / 16),
        "single_zeros": pytest.approx((1 + 1) / 4),
        "single_zeros_by_chance": pytest.approx(1 - 7 / 16),
    }
