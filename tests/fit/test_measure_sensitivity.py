"""Sensitivities that are measured on several texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.errors import ConfigError, TextError
from pyquant.files.kept import not_used
from pyquant.fit.kept_prefixes import KeptPrefixes
from pyquant.fit.measure_sensitivity import measure_sensitivity, output_power
from pyquant.models.model_file import ModelFile
from tests.support.command import run
from tests.support.models import EXPERTS, F32, Model

CTX = 64
WORDS = ["he", "in", "an", "er", "tin", "at"]  # of two tokens each


def spell(n_words: int, seed: int) -> bytes:
    return "".join(f"{word} " for word in np.random.default_rng(seed).choice(WORDS, n_words)).encode()


PERIOD = spell(CTX // 2, 3)  # repeated, all chunks of it are the same
OTHER = spell(3 * CTX // 2, 4)


@pytest.fixture(scope="module")
def measure(generated: Callable[[str], Path], stats_of, tmp_path_factory) -> Callable[..., Sensitivity]:
    folder = tmp_path_factory.mktemp("texts")

    def measured(*texts: bytes, n_chunks: int | None = None) -> Sensitivity:
        paths = [folder / f"{i}.txt" for i in range(len(texts))]
        for path, content in zip(paths, texts):
            path.write_bytes(content)
        given = paths[0] if len(paths) == 1 else paths  # either is taken
        return measure_sensitivity(
            generated(F32), stats_of(F32), given, n_ctx=CTX, n_chunks=n_chunks, threads=1
        )

    return measured


def values(sensitivity: Sensitivity, what: str) -> np.ndarray:
    return np.array([getattr(of, what) for of in sensitivity.by_tensor.values()])


def test_texts_count_alike_however_long_they_are(measure, monkeypatch) -> None:
    """KLDs are made up: in which batch a chunk is computed changes them by a percent."""
    tensors = itertools.count()

    def kld_by_chunk(runs: KeptPrefixes) -> np.ndarray:
        n_chunks = runs._chunks.n_chunks
        of_other = np.arange(n_chunks) >= n_chunks - 3
        return np.where(of_other, 1e-4 * (1 + next(tensors) % 5), 1e-4)

    monkeypatch.setattr(KeptPrefixes, "kld_by_chunk", kld_by_chunk)
    short = values(measure(PERIOD, OTHER), "measured")
    tensors = itertools.count()
    long = values(measure(8 * PERIOD, OTHER), "measured")
    assert long / long[0] == pytest.approx(short / short[0], rel=1e-6)


def test_the_mean_of_texts_is_between_them(measure) -> None:
    both, *each = (values(of, "measured") for of in (measure(PERIOD, OTHER), measure(PERIOD), measure(OTHER)))
    parts, *_ = np.linalg.lstsq(np.stack(each, axis=1), both, rcond=None)
    assert (parts > 0.05).all()
    assert np.stack(each, axis=1) @ parts == pytest.approx(both, rel=1e-3)


def test_what_texts_have_apart_is_part_of_the_error(measure) -> None:
    one, both = measure(4 * PERIOD), measure(4 * PERIOD, OTHER)
    assert values(one, "error").max() < 1e-3  # its chunks are alike
    assert values(both, "error").min() > 1e-2
    twice = measure(OTHER, OTHER)
    expected = values(measure(OTHER), "error") * np.sqrt(2 / 5)  # of 6 chunks, 3 and 3 alike, beside 3
    assert values(twice, "error") == pytest.approx(expected, rel=1e-3)


def test_each_text_needs_a_chunk(measure) -> None:
    with pytest.raises(TextError, match=r"1\.txt: too short: \d+ tokens, a chunk needs 64"):
        measure(OTHER, PERIOD[:9])
    with pytest.raises(ConfigError, match="text: at least one is needed"):
        measure()


@pytest.mark.ci
def test_the_command_takes_several(generated, stats_of, text: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other.txt", tmp_path / "s.toml"
    other.write_bytes(OTHER)
    told = run(
        "sensitivity", generated(F32), "--hessian", stats_of(F32), "--text", text, "--text", other,
        "--ctx", CTX, "--chunks", 2, "--output", out,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    expected = measure_sensitivity(generated(F32), stats_of(F32), [text, other], n_ctx=CTX, n_chunks=2)
    assert "nothing says" not in told.stderr
    assert values(Sensitivity.read(out), "measured") == pytest.approx(values(expected, "measured"), rel=1e-3)


@pytest.mark.ci
def test_a_text_of_one_chunk_does_not_say_how_certain_it_is(generated, stats_of, tmp_path: Path) -> None:
    short, out = tmp_path / "short.txt", tmp_path / "s.toml"
    short.write_bytes(OTHER[: len(OTHER) // 2])
    told = run(
        "sensitivity",
        generated(F32),
        "--hessian",
        stats_of(F32),
        "--text",
        short,
        "--ctx",
        CTX,
        "-o",
        out,
    )
    assert told.returncode == 0
    assert "one chunk of 64 tokens: nothing says how certain this is" in told.stderr
    assert " ? " in told.stdout
    assert "%" not in told.stdout


class Stopped(Exception):
    pass


def test_a_run_goes_on_behind_what_is_measured(
    generated, stats_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, other, kept = tmp_path / "text", tmp_path / "other", tmp_path / "kept"
    text.write_bytes(OTHER)
    other.write_bytes(PERIOD)
    runs, kld_by_chunk = itertools.count(), KeptPrefixes.kld_by_chunk

    def counted(self: KeptPrefixes) -> np.ndarray:
        next(runs)
        return kld_by_chunk(self)

    def measure(text: Path, **options) -> tuple[Sensitivity, int]:
        nonlocal runs
        runs = itertools.count()
        found = measure_sensitivity(generated(F32), stats_of(F32), text, n_ctx=CTX, threads=1, **options)
        return found, next(runs)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise Stopped

    monkeypatch.setattr(KeptPrefixes, "kld_by_chunk", counted)
    expected, n_runs = measure(text)
    with pytest.raises(Stopped):
        measure(text, checkpoint=kept, progress=stop)
    lines = kept.read_text().splitlines()
    assert len(lines) == 1 + 3
    with kept.open("a") as file:
        file.write(lines[-1][:20])  # cut off by a kill
    assert measure(text, checkpoint=kept) == (expected, n_runs - 3)
    assert measure(text, checkpoint=kept) == (expected, 1)
    told: list[str] = []
    assert measure(other, checkpoint=kept, tell=told.append) == measure(other)
    assert told == [not_used(kept)]
    damaged = ('[["x"], [1.0, 1.0, 1.0]]', '["blk.0.attn_q.weight", "111"]')
    for broken in ("[]", '["blk.0.attn_q.weight", [1.0]]', '["nothing", [1, 1, 1]]', "{", *damaged):
        kept.write_text("\n".join([lines[0], broken, *lines[1:], ""]))
        assert measure(text, checkpoint=kept) == (expected, n_runs)


def test_power_is_of_outputs_also_by_an_imatrix(generated, stats_of) -> None:
    model, known = ModelFile(generated(F32)), Calibration.read(stats_of(F32))
    diagonals = Calibration.read(stats_of(F32).with_name("imatrix.gguf"))
    for tensor in model.tensors:
        if tensor.name in known.matrices:
            weights = tensor.weights()
            squares = np.square(weights) * diagonals.diagonal(tensor.name).reshape(1, -1)
            assert output_power(tensor, weights, diagonals) == pytest.approx(squares.sum(), rel=1e-4)
            by_hessian = output_power(tensor, weights, known)
            assert output_power(tensor, weights, diagonals) == pytest.approx(by_hessian, rel=0.5)


def test_experts_count_by_their_tokens(generated, stats_of) -> None:
    model, known = ModelFile(generated(EXPERTS)), Calibration.read(stats_of(EXPERTS))
    tensor = next(tensor for tensor in model.tensors if "ffn_down_exps" in tensor.name)
    rows, loads = tensor.shape[1], known.loads(tensor)
    parts = tensor.weights().reshape(tensor.n_experts, rows, -1)
    own = [np.vdot(part @ known.hessian(tensor.name, i), part) for i, part in enumerate(parts)]
    assert output_power(tensor, tensor.weights(), known) == pytest.approx(loads @ own, rel=1e-4)
    of_all = Calibration.read(stats_of(EXPERTS).with_name("imatrix.gguf"))
    of_all.counts = lambda name: np.array([64.0])  # type: ignore[method-assign]
    assert of_all.loads(tensor).tolist() == [1.0] * tensor.n_experts
    (unknown,) = (tensor for tensor in model.tensors if tensor.name == "token_embd.weight")
    assert known.loads(unknown).tolist() == [1.0]


@pytest.mark.parametrize("dead", ["blk.0.attn_v.weight", "blk.1.attn_norm.weight"])
def test_what_gives_nothing_has_no_sensitivity(dead: str, text: Path, tmp_path: Path) -> None:
    def zeros(name: str, x: np.ndarray) -> np.ndarray:
        return 0 * x if name == dead else x

    model = Model(n_layer=2, change=zeros).write(tmp_path / "model.gguf")
    calibrate_model(model, [text], tmp_path / "stats", n_ctx=64, n_chunks=16)
    found = measure_sensitivity(model, tmp_path / "stats", text, n_ctx=CTX, n_chunks=2)
    behind = {f"blk.1.attn_{part}.weight" for part in "qkv"} if "norm" in dead else {dead}
    assert not behind & set(found.by_tensor)
    assert "blk.0.attn_q.weight" in found.by_tensor
    assert all(np.isfinite(of.sensitivity) for of in found.by_tensor.values())
