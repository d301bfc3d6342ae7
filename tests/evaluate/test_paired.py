"""Paired differences by their definitions, and KLD by position."""

from __future__ import annotations

import numpy as np
import pytest

from pyquant.evaluate.by_position import MOST_SPANS, kld_by_position
from pyquant.evaluate.kld import mean_and_error
from pyquant.evaluate.paired import mean_of_chunks, paired_differences


def test_chunks_of_one_length_are_averaged() -> None:
    values = np.random.default_rng(0).exponential(size=(9, 40))
    mean, error = mean_of_chunks(values.ravel(), np.repeat(np.arange(9), 40))
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.mean(axis=1).std(ddof=1) / 3)


def test_the_error_is_the_spread_of_drawn_chunks() -> None:
    # Conversations of 1 to 60 tokens, each with a level of its own: tokens of one are not independent.
    rng = np.random.default_rng(1)

    def draw() -> tuple[float, float]:
        lengths = rng.integers(1, 60, 50)
        chunks = np.repeat(np.arange(50), lengths)
        return mean_of_chunks(rng.normal(size=50)[chunks] + rng.normal(size=len(chunks)), chunks)

    means, errors = np.array([draw() for _ in range(600)]).T
    assert np.mean(errors) == pytest.approx(means.std(), rel=0.1)


def test_one_chunk_has_the_error_of_its_tokens() -> None:
    values = np.random.default_rng(2).normal(size=100)
    assert mean_of_chunks(values, np.zeros(100, int)) == pytest.approx(mean_and_error(values))


def test_files_are_told_apart_whose_own_errors_overlap() -> None:
    rng = np.random.default_rng(3)
    chunks = np.repeat(np.arange(10), 100)
    one = rng.exponential(0.1, 1000)
    other, copy = one * 1.02, one + rng.normal(0, 1e-3, 1000)
    assert abs(other.mean() - one.mean()) < mean_and_error(one)[1]
    first, second, _ = paired_differences(["one", "other", "copy"], [one, other, copy], chunks)
    assert (first.model, first.other, first.apart) == ("one", "other", True)
    assert first.difference == pytest.approx(one.mean() - other.mean())
    assert not second.apart


@pytest.mark.parametrize(("errors", "apart"), [(1.9, False), (2.1, True)])
def test_files_are_apart_from_two_standard_errors_on(errors: float, apart: bool) -> None:
    chunks = np.repeat(np.arange(10), 5)
    noise = np.tile([1.0, -1.0], 5)[chunks]
    _, error = mean_of_chunks(noise, chunks)
    (found,) = paired_differences(["a", "b"], [noise + errors * error, np.zeros(50)], chunks)
    assert found.difference == pytest.approx(errors * found.error)
    assert found.apart == apart


def test_numbers_of_chunks_without_a_token_do_not_count() -> None:
    values, chunks = np.random.default_rng(4).normal(size=50), np.repeat(np.arange(10), 5)
    assert mean_of_chunks(values, 2 * chunks) == pytest.approx(mean_of_chunks(values, chunks))


def test_positions_are_cut_into_spans_of_one_length() -> None:
    positions = np.concatenate([np.arange(100, 200)] * 3)
    kld = [positions * 1.0, positions * 2.0]
    spans = kld_by_position(kld, positions)
    assert len(spans) <= MOST_SPANS
    assert [span.first for span in spans] == list(range(100, 200, 4))
    assert [span.last + 1 for span in spans] == [*(span.first for span in spans[1:]), 200]  # they adjoin
    assert spans[0].n_tokens == 12
    assert spans[0].kld == pytest.approx([101.5, 203])
    assert spans[0].error[1] == pytest.approx(mean_and_error(kld[1][positions < 104])[1])
    apart = kld_by_position([np.ones(2)], np.array([1, 1000]))
    assert [(span.first, span.n_tokens) for span in apart] == [(1, 1), (993, 1)]


def test_the_last_span_ends_with_the_context() -> None:
    spans = kld_by_position([np.arange(71.0)], np.arange(100, 171))
    assert [(span.first, span.last, span.n_tokens) for span in spans[-2:]] == [(166, 168, 3), (169, 170, 2)]
