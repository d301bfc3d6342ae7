"""Hessians of several texts are shrunk as far as the texts differ, whether a file holds them or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration import Calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.panels import full_matrix
from pyquant.calibration.shrinkage import COLUMNS, PART, BetweenTexts, go_to_diagonal, sampled_columns
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.rounding.collecting import write_collected
from tests.support.models import Model

MODEL = Model(n_embd=64, n_ff=320, n_layer=2, n_head_kv=2, seed=4)
OPTIONS = {"n_ctx": 64, "n_chunks": 40, "threads": 1}
WEIGHTS = [1.0, 0.5, 2.0]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODEL.write(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module")
def texts(model: Path) -> list[Path]:
    """Sentences of the same letters and words, with others among them in each text."""
    rng = np.random.default_rng(0)
    common, paths = ["the", "of", "and", "to", "in", "is", "it", "that", "with", "as"], []
    for number, own in enumerate((["animal", "house"], ["number", "0", "1"], ["TEXT", "IN", "CAPITALS"])):
        words = rng.choice([*common * 9, *own * 4], 4000)
        paths.append(model.with_name(f"{number}.txt"))
        paths[-1].write_text(" ".join(words))
    return paths


def sums_of(path: Path, name: str) -> tuple[np.ndarray, float, float]:
    """The unscaled Hessian that a file stores, tokens in it, and the share that it is shrunk by."""
    file = ModelFile(path)
    by_name = {tensor.name: tensor for tensor in file.tensors}

    def values(what: str, dtype: type) -> np.ndarray:
        tensor = by_name[f"{name}.{what}"]
        return np.fromfile(path, dtype, tensor.n_bytes // np.dtype(dtype).itemsize, offset=tensor.offset)

    n_in = len(values("in_sum2", np.float32))
    share = values("shrinkage", np.float32)[0] if f"{name}.shrinkage" in by_name else 0
    return full_matrix(values("hessian", np.float32), n_in), values("hessian_counts", np.float64)[0], share


def test_the_share_is_that_of_texts_calibrated_on_alone(
    model: Path, texts: list[Path], tmp_path: Path
) -> None:
    calibrate_model(model, texts, tmp_path / "all", weights=WEIGHTS, **OPTIONS)
    for number, text in enumerate(texts):
        calibrate_model(model, [text], tmp_path / str(number), random=0, **OPTIONS)
    for name in ("blk.0.attn_q.weight", "blk.1.ffn_down.weight"):
        alone = [sums_of(tmp_path / str(number), name) for number in range(len(texts))]
        assert all(share == 0 for *_, share in alone)
        columns = sampled_columns(len(alone[0][0]))
        assert len(columns) == min(COLUMNS, len(alone[0][0]))
        pairs = np.ix_(columns, columns)
        between = BetweenTexts(len(columns))
        for (products, count, _), weight in zip(alone, WEIGHTS):
            between.add(weight * products[pairs], weight * count)
        hessian, count, share = sums_of(tmp_path / "all", name)
        assert 0.003 < share < PART
        assert share == pytest.approx(between.share, rel=1e-3)
        hessian *= np.float32(1 / count)
        go_to_diagonal(hessian, share)
        np.testing.assert_allclose(Calibration.read(tmp_path / "all").hessian(name), hessian, rtol=1e-6)


def test_experts_are_not_told_apart_by_text(texts: list[Path], tmp_path: Path) -> None:
    experts = Model(n_embd=64, n_ff=96, n_layer=1, n_expert=4, seed=5).write(tmp_path / "experts.gguf")
    calibrate_model(experts, texts, tmp_path / "stats", n_ctx=64, n_chunks=4, threads=1)
    shrunk = {tensor.name for tensor in ModelFile(tmp_path / "stats").tensors if "shrinkage" in tensor.name}
    assert shrunk == {"blk.0.attn_q.weight.shrinkage", "blk.0.attn_output.weight.shrinkage"}
    calibrate_model(
        experts, texts, tmp_path / "diagonals", n_ctx=64, imatrix_only=True, n_chunks=4, threads=1
    )
    assert not any("shrinkage" in tensor.name for tensor in ModelFile(tmp_path / "diagonals").tensors)


def test_collected_hessians_are_shrunk_alike(model: Path, texts: list[Path], tmp_path: Path) -> None:
    options = OPTIONS | {"random": 0.0}
    calibrate_model(model, texts, tmp_path / "whole", **options)
    calibrate_model(model, texts, tmp_path / "diagonals", imatrix_only=True, **options)
    whole, collected = (Calibration.read(tmp_path / name) for name in ("whole", "diagonals"))
    assert collected.kept.texts().tolist() == [0] * 40 + [1] * 40 + [2] * 40
    assert collected.kept.texts(3).tolist() == [0, 1, 2]
    seen = []

    def compare(wanted) -> None:
        for name in (each.tensor.name for each in wanted):
            ours, expected = collected.hessian(name), whole.hessian(name)
            np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-3 * expected.max())
            seen.append(name)

    wanted = [tensor for tensor in ModelFile(model).tensors if tensor.name in whole.matrices]
    write_collected(ModelFile(model), collected, wanted, compare, folder=tmp_path)
    assert len(seen) == len(wanted)


def test_tokens_that_are_not_of_the_texts_are_refused(model: Path, texts: list[Path], tmp_path: Path) -> None:
    calibrate_model(model, texts, tmp_path / "stats", **OPTIONS)
    calibration = Calibration.read(tmp_path / "stats")
    del calibration.origin.texts[0]
    with pytest.raises(ModelFileError, match=r"stats: holds 144 chunks of tokens, where its texts give 104"):
        calibration.kept.texts()


PROGRAM = """
import sys
from pathlib import Path
from pyquant.calibration.calibrate import calibrate_model
model, stats, *texts = map(Path, sys.argv[1:])
calibrate_model(
    model, texts, stats, n_ctx=64, n_chunks=40, threads=1, weights=[1.0, 0.5, 2.0], checkpoint_seconds=0,
    progress=lambda what, done, n: print(done, flush=True),
)
"""


@pytest.mark.parametrize("n_batches", [1, 2, 3, 5])
def test_killed_between_texts_it_goes_on_to_the_same_file(
    model: Path, texts: list[Path], tmp_path: Path, n_batches: int
) -> None:
    calibrate_model(model, texts, tmp_path / "undisturbed", weights=WEIGHTS, **OPTIONS)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, (model, tmp_path / "stats", *texts))],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(n_batches):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    calibrate_model(model, texts, tmp_path / "stats", weights=WEIGHTS, **OPTIONS)
    assert (tmp_path / "stats").read_bytes() == (tmp_path / "undisturbed").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats", "undisturbed"]


def interrupted(model: Path, texts: list[Path], stats: Path, n_chunks: int, **options: object) -> None:
    """Calibrate up to so many chunks."""

    def stop(what: str, done: int, total: int) -> None:
        if done >= n_chunks:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_model(model, texts, stats, checkpoint_seconds=0, progress=stop, **OPTIONS, **options)


def test_a_text_that_is_kept_is_not_counted_twice(model: Path, texts: list[Path], tmp_path: Path) -> None:
    """A kill may leave what is kept of a text ahead of the spool, which is written after it."""
    interrupted(model, texts, tmp_path / "stats", 72)
    (tmp_path / ".stats.spool").unlink()
    calibrate_model(model, texts, tmp_path / "stats", **OPTIONS)
    calibrate_model(model, texts, tmp_path / "undisturbed", **OPTIONS)
    assert (tmp_path / "stats").read_bytes() == (tmp_path / "undisturbed").read_bytes()


@pytest.mark.parametrize("how", ["gone", "of another run", "damaged"])
def test_sums_of_texts_that_are_not_there_are_not_made_up(
    model: Path, texts: list[Path], tmp_path: Path, how: str
) -> None:
    stats, kept = tmp_path / "stats", tmp_path / ".stats.texts.npz"
    if how == "of another run":
        interrupted(model, texts, stats, 72, weights=[5.0, 1.0, 1.0])
        another = kept.read_bytes()
    interrupted(model, texts, stats, 112)
    if how == "of another run":
        kept.write_bytes(another)
    elif how == "gone":
        kept.unlink()
    else:
        kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match=r"\.stats\.texts\.npz: what an interrupted run kept .* remove"):
        calibrate_model(model, texts, stats, **OPTIONS)
    kept.unlink(missing_ok=True)
    (tmp_path / ".stats.spool").unlink()
    calibrate_model(model, texts, stats, **OPTIONS)
    calibrate_model(model, texts, tmp_path / "undisturbed", **OPTIONS)
    assert stats.read_bytes() == (tmp_path / "undisturbed").read_bytes()


def test_what_another_run_kept_is_replaced(model: Path, texts: list[Path], tmp_path: Path) -> None:
    interrupted(model, texts, tmp_path / "stats", 72, weights=[5.0, 1.0, 1.0])
    calibrate_model(model, texts, tmp_path / "stats", **OPTIONS)
    calibrate_model(model, texts, tmp_path / "undisturbed", **OPTIONS)
    assert (tmp_path / "stats").read_bytes() == (tmp_path / "undisturbed").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stats", "undisturbed"]
