"""Check how much errors count in each row of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.rounding.factors import matrices
from pyquant.rounding.row_weights import MOST, OF_OTHERS, OF_OUTPUTS, PER_DOUBLE, TRUST, RowWeights
from tests.support.models import EXPERTS, F32, Model


def of(model: Path, stats: Path | None, name: str, expert: int = 0) -> np.ndarray | None:
    source = ModelFile(model)
    (tensor,) = (tensor for tensor in source.tensors if tensor.name == name)
    known = Calibration.read(stats) if stats else None
    return RowWeights(source, known).of([*matrices(tensor, (32, 32))][expert])


def weights_of(model: Path, name: str, expert: int = 0) -> np.ndarray:
    (tensor,) = (tensor for tensor in ModelFile(model).tensors if tensor.name == name)
    return tensor.weights().reshape(tensor.n_experts, -1, tensor.n_per_row)[expert].astype(np.float64)


def power_of(model: Path, stats: Path, name: str, expert: int = 0) -> np.ndarray:
    """The mean square of what each row gives."""
    weights = weights_of(model, name, expert)
    hessian = Calibration.read(stats).hessian(name, expert)
    assert hessian is not None
    return ((weights @ hessian) * weights).sum(axis=1)


def check_trusted(rows: np.ndarray | None, guess: np.ndarray) -> None:
    """Compare with a guess whose logarithms are trusted in part, bounded, and rounded."""
    assert rows is not None
    logarithms = TRUST * np.log2(guess)
    bounded = np.clip(logarithms - np.median(logarithms), -np.log2(MOST), np.log2(MOST))
    np.testing.assert_allclose(np.log2(rows), bounded, atol=0.5 / PER_DOUBLE + 1e-3)


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
    tokens = Calibration.read(stats_of(F32)).kept.tokens(1000).ravel()
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


@pytest.mark.parametrize("expert", [None, 0, 1, 2], ids=["dense", "expert 0", "expert 1", "expert 2"])
@pytest.mark.parametrize("kind", ["ffn_up", "ffn_gate"])
def test_neurons_count_by_what_they_add_over_what_their_row_gives(
    generated, stats_of, kind: str, expert: int | None
) -> None:
    name, suffix, of_expert = (F32, "", 0) if expert is None else (EXPERTS, "_exps", expert)
    model, stats = generated(name), stats_of(name)
    row, down = (f"blk.0.{each}{suffix}.weight" for each in (kind, "ffn_down"))
    enters = Calibration.read(stats).diagonal(down)[of_expert]
    adds = enters * np.square(weights_of(model, down, of_expert)).sum(axis=0)
    check_trusted(of(model, stats, row, of_expert), adds / power_of(model, stats, row, of_expert))


@pytest.mark.parametrize("head", range(4))
def test_keys_count_by_the_queries_of_their_own_group(head: int, tmp_path: Path, text: Path) -> None:
    def change(name: str, x: np.ndarray) -> np.ndarray:
        if name.endswith("attn_q.weight"):
            x[16 * head : 16 * (head + 1)] *= 10
        return x

    model = Model(n_layer=1, n_head=4, n_head_kv=2, change=change).write(tmp_path / "model.gguf")
    calibrate_model(model, [text], tmp_path / "stats", n_ctx=64, n_chunks=8)
    queries = power_of(model, tmp_path / "stats", "blk.0.attn_q.weight").reshape(4, 16)
    keys = of(model, tmp_path / "stats", "blk.0.attn_k.weight")
    check_trusted(keys, np.concatenate([queries[:2].sum(axis=0), queries[2:].sum(axis=0)]))
    own, other = keys.reshape(2, 16)[[head // 2, 1 - head // 2]]
    assert own.min() > other.max()


def test_a_whole_matrix_counts_by_the_share_of_what_it_gives(generated, stats_of) -> None:
    model, stats = generated(F32), stats_of(F32)
    guesses = RowWeights(ModelFile(model), Calibration.read(stats))
    of_kinds = {"attn_v": OF_OUTPUTS["attn_v"], "ffn_up": OF_OTHERS}
    units = [
        guesses.whole(matrix) * power_of(model, stats, tensor.name).sum() / of_kinds[kind]
        for tensor in ModelFile(model).tensors
        if (kind := kind_of(tensor.name)) in of_kinds
        for matrix in matrices(tensor, (32, 32))
    ]
    assert units == pytest.approx([units[0]] * 4)


def test_nothing_is_guessed_where_a_norm_stands_between_keys_and_queries(stats_of, tmp_path: Path) -> None:
    class Normed(Model):
        def shapes(self) -> dict[str, tuple[int, ...]]:
            norms = {f"blk.0.attn_{letter}_norm.weight": (16,) for letter in "qk"}
            return super().shapes() | norms  # weights before them are those of F32

    model = Normed().write(tmp_path / "model.gguf")
    for layer, known in ((0, False), (1, True)):
        for letter in "qk":
            rows = of(model, stats_of(F32), f"blk.{layer}.attn_{letter}.weight")
            assert (rows is not None) == known
