"""Findings in words: the best at each size, and what is within noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.study.items import write_items
from pyquant.study.results.findings import best_at_each_size, candidates, not_usable
from pyquant.study.results.read import Measurement, ModelResults, RowResults


def row(
    label: str, bits: float, kld: float, error: float = 0.001, ratio: float = 1.1, items: Path | None = None
) -> RowResults:
    quality = {"kld": {"mean": kld, "error": error}, "ratio": ratio}
    measured = {
        "size": [Measurement("size-key", {"bits": bits}, {}, None)],
        "quality": [Measurement("quality-key", quality, {}, items)],
    }
    return RowResults(label, label, label, None, {}, measured)


def said(*rows: RowResults) -> list[str]:
    return best_at_each_size(ModelResults("model", "", ["text"], list(rows)), 0)


def test_the_best_at_each_size() -> None:
    assert said(
        row("a", 4.1, 0.30), row("b", 4.5, 0.20), row("c", 4.4, 0.2015),
        row("d", 5.2, 0.25), row("e", 6.0, 0.01), row("f", 8.5, 0.02),
    ) == [
        "Up to 4.5 bits per weight, b is nearest to the model: KLD 0.2000 ± 0.0010 nats at 4.50 bits. "
        "Within noise of it: c.",
        "Up to 6 bits per weight, e is nearest to the model: KLD 0.0100 ± 0.0010 nats at 6.00 bits.",
        "Larger, and no nearer: f.",
    ]  # fmt: skip
    assert said(row("a", 4.1, 0.30)) == []


def test_what_is_of_no_use_is_not_the_best() -> None:
    rows = [row("a", 4.0, 0.30), row("b", 3.0, 0.1, ratio=11.0), row("c", 4.1, 0.4)]
    assert said(*rows)[0].startswith("Up to 4 bits per weight, a is")
    assert not any("b" in sentence.split() for sentence in said(*rows))
    model = ModelResults("model", "", ["text"], rows)
    assert not_usable(model, 0) == ["Of no use, with a perplexity more than 10 times the model's: b."]


def test_noise_is_that_of_the_difference(tmp_path: Path) -> None:
    # The values vary much from token to token, and together: their difference does not.
    rng = np.random.default_rng(1)
    base = rng.exponential(0.2, 1000)
    rows = []
    for name, values in (("a", base), ("b", base + 0.01 + rng.normal(0, 0.001, 1000))):
        path = tmp_path / f"{name}.npz"
        write_items(path, {"kld": values.astype(np.float32), "chunk": np.arange(1000)})
        error = values.std() / 1000**0.5
        rows.append(row(name, 4.0, float(values.mean()), float(error), items=path))
    a, b = candidates(ModelResults("model", "", ["text"], rows), 0)
    assert a.error_of_difference(b) == pytest.approx(0.001 / 1000**0.5, rel=0.1)
    assert "Within noise" not in said(*rows)[0]
    alone = [row(candidate.label, 4.0, candidate.kld, candidate.error) for candidate in (a, b)]
    assert "Within noise of it: b." in said(*alone)[0]
