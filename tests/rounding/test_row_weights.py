"""Check how much errors count in each row of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.models.model_file import ModelFile
from pyquant.rounding.factors import matrices
from pyquant.rounding.row_weights import MOST, RowWeights
from tests.support.models import EXPERTS, F32, Model


def of(model: Path, stats: Path | None, name: str, expert: int = 0) -> np.ndarray | None:
    source = ModelFile(model)
    (tensor,) = (tensor for tensor in source.tensors if tensor.name == name)
    known = Calibration.read(stats) if stats else None
    return RowWeights(source, known).of([*matrices(tensor, (32, 32))][expert])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Callable[..., tuple[Path, Path]]:
    """A model whose weights are changed by `change`, and its statistics."""

    def make(change: Callable[[str, np.ndarray], np.ndarray]) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("model")
        model = Model(n_layer=1, change=change).write(folder / "model.gguf")
        calibrate_model(model, [text], folder / "stats", n_ctx=64, n_chunks=16)
        return model, folder / "stats"

    return make


def test_neurons_whose_output_counts_more_have_finer_rows(made) -> None:
    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name.endswith("ffn_down.weight"):
            x[:, 7] *= 8  # what neuron 7 gives
        return x

    for kind in ("ffn_up", "ffn_gate"):
        plain, changed = (of(*made(how), f"blk.0.{kind}.weight") for how in (lambda name, x: x, change))
        assert changed[7] / np.median(changed) == pytest.approx(8 * plain[7] / np.median(plain), rel=0.5)


def test_rows_that_meet_large_partners_are_finer(made) -> None:
    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name.endswith("attn_k.weight"):
            x[3] *= 10
        return x

    model, stats = made(change)
    queries = of(model, stats, "blk.0.attn_q.weight")
    source = ModelFile(model)
    heads, groups = (source.hyperparameter(f"attention.{key}") for key in ("head_count", "head_count_kv"))
    width = len(queries) // heads
    largest = np.flatnonzero(queries == queries.max())
    assert list(largest) == [head * width + 3 for head in range(heads // groups)]
    keys = of(model, stats, "blk.0.attn_k.weight")
    assert keys[3] < queries.max()


def test_tokens_that_come_often_have_finer_rows(generated, stats_of) -> None:
    rows = of(generated(F32), stats_of(F32), "token_embd.weight")
    tokens = Calibration.read(stats_of(F32)).tokens(1000).ravel()
    counts = np.bincount(tokens, minlength=len(rows))
    assert rows[counts.argmax()] == rows.max() > rows[counts.argmin()] == rows.min()
    assert (np.diff(rows[np.argsort(counts, kind="stable")]) >= 0).all()
    assert rows.max() <= MOST


def test_experts_count_by_their_own_inputs(generated, stats_of) -> None:
    rows = [
        of(generated(EXPERTS), stats_of(EXPERTS), "blk.0.ffn_up_exps.weight", expert) for expert in (0, 1)
    ]
    assert rows[0].shape == rows[1].shape
    assert (rows[0] != rows[1]).any()


def test_nothing_is_guessed_where_nothing_is_known(generated, stats_of) -> None:
    assert of(generated(F32), None, "blk.0.ffn_up.weight") is None
    for kind in ("attn_v", "attn_output", "ffn_down"):
        assert of(generated(F32), stats_of(F32), f"blk.0.{kind}.weight") is None
    imatrix = stats_of(F32).with_name("imatrix.gguf")
    for name in ("blk.0.ffn_up.weight", "blk.0.attn_q.weight", "token_embd.weight"):
        assert of(generated(F32), imatrix, name) is None
