"""Inputs of matrices in both passes of rounding in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from pyquant import _core
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sample import MOST_CHUNKS, sample_chunks, spread
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.corrected_target import CorrectedTarget
from pyquant.rounding.correction import Correction
from pyquant.rounding.error_propagation import write_propagated
from pyquant.rounding.staged_context import StagedContext
from pyquant.rounding.tensor_writer import ToWrite
from tests.support.models import F32, ODD_ROWS


def test_what_products_are_added_to_is_known(generated) -> None:
    path = generated(F32)
    model = ModelFile(path)
    by_name = {tensor.name: tensor for tensor in model.tensors}
    tokens = np.random.default_rng(0).integers(5, 60, (3, 32)).astype(np.int32)
    names = [name for name in by_name if name.startswith("blk.") and by_name[name].n_rows > 1]
    with Model(path) as running, StagedContext(running, names, [tokens], 1) as context:
        known = {name for stage in context.stages if stage.in_stream for name in stage.matrices}
        n_layers = 1 + max(int(name.split(".")[1]) for name in names)
        # Most tokens of the last layer are left out between the product and the sum.
        expected = {f"blk.{layer}.ffn_down.weight" for layer in range(n_layers)}
        assert known == expected | {f"blk.{layer}.attn_output.weight" for layer in range(n_layers - 1)}
        number = next(i for i, s in enumerate(context.stages) if s.matrices == ["blk.0.attn_output.weight"])
        with tempfile.TemporaryFile() as file:
            largest = max(stage.n_bytes for stage in context.stages)
            states = _core.PassStates(1, n_bytes=largest, memory=largest, file=file.fileno())
            context.run(0, None, number, states, 0)
            stream = context.stream()
        embeddings = by_name["token_embd.weight"].weights()
        np.testing.assert_array_equal(stream, embeddings[tokens.ravel()])


def test_kept_chunks_are_of_all_texts_in_their_shares() -> None:
    def text(n: int, begin: int) -> np.ndarray:
        return np.arange(begin, begin + n, dtype=np.int32)[:, None].repeat(4, 1)

    kept = sample_chunks([text(3000, 0), text(1000, 10_000)], [1, 1])[:, 0]
    assert len(kept) == MOST_CHUNKS
    assert (kept >= 10_000).sum() == MOST_CHUNKS / 4
    assert np.ptp(np.diff(kept[kept < 10_000])) <= 1  # at even distances
    few = sample_chunks([text(300, 0), text(50, 10_000)], [1, 6])[:, 0]
    assert (few >= 10_000).sum() == 50  # all there are
    np.testing.assert_array_equal(sample_chunks([text(7, 0)], [1]), text(7, 0))
    np.testing.assert_array_equal(spread(text(7, 0), 3)[:, 0], [0, 3, 6])


def inputs_of_stages(source: Path, stats: Path, folder: Path, chunks: int) -> list[np.ndarray]:
    """Give what enters matrices in both passes, the copy's values being changed as they are reached."""
    entered: list[list[np.ndarray]] = []

    class Noted(Correction):
        def __init__(self, n_in: int, threads: int | None) -> None:
            super().__init__(n_in, threads)
            entered.append([])

        def add(self, original: np.ndarray, changed: np.ndarray) -> None:
            entered[-1].append(np.stack([original, changed]))

    class NotedStream(CorrectedTarget):
        def __init__(self, weights: np.ndarray, threads: int | None) -> None:
            super().__init__(weights, threads)
            entered.append([])

        def add(self, *sides: np.ndarray) -> None:
            original, changed, stream, changed_stream = sides
            now = np.hstack([original, stream]), np.hstack([changed, changed_stream])
            entered[-1].append(np.stack(now))

    def write(wanted: list[ToWrite]) -> None:
        for each in wanted:
            each.copy[:] = _core.ggml_encoder(int(each.tensor.type)).encode(0.9 * each.tensor.weights())

    model, calibration = ModelFile(source), Calibration.read(stats)
    wanted = [t for t in model.tensors if t.name in calibration.matrices and "blk" in t.name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyquant.rounding.error_propagation.Correction", Noted)
        patch.setattr("pyquant.rounding.error_propagation.CorrectedTarget", NotedStream)
        patch.setattr("pyquant.rounding.staged_context.PIECE", chunks * 64)
        write_propagated(model, calibration, wanted, 32, write, folder=folder, threads=1, memory=0)
    return [np.concatenate(parts, axis=1) for parts in entered]


@pytest.mark.ci
@pytest.mark.parametrize("model", [F32, ODD_ROWS])
def test_what_enters_does_not_depend_on_pieces(generated, stats_of, tmp_path: Path, model: str) -> None:
    whole, pieces = (inputs_of_stages(generated(model), stats_of(model), tmp_path, n) for n in (32, 5))
    assert len(whole) == len(pieces) >= 8
    for at_once, in_pieces in zip(whole, pieces):
        np.testing.assert_array_equal(at_once, in_pieces)
    assert all((original != changed).any() for original, changed in whole[1:])
