"""A calibration that is killed, interrupted or crowded, and one that cannot be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration import Calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.gradients.llama_graph import MATRICES
from pyquant.calibration.imatrix import read_imatrix
from pyquant.errors import ConfigError, ModelFileError, NotEnoughMemory, OutputError, TextError
from pyquant.files.kept import not_used
from pyquant.models.model_file import ModelFile
from tests.support.models import Model, with_too_large_inputs

KIND = Model(n_embd=64, n_ff=320, n_layer=2, n_expert=3, seed=6)
LARGEST = 4 * (320 + 320 * 256 + 64 * 64)
OPTIONS = {"n_ctx": 64, "n_chunks": 300}  # ten batches

# Says when a batch is done, and checkpoints after each.
PROGRAM = """
import sys
from pyquant.calibration.calibrate import calibrate_model
model, text, output, memory = sys.argv[1:]
calibrate_model(
    model, [text], output, memory=int(memory) or None, checkpoint_seconds=0, n_ctx=64, n_chunks=300,
    progress=lambda what, done, total: print(done, flush=True),
)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KIND.write(tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(map(str, np.random.default_rng(2).integers(0, 10**6, 4000))))
    return path


@pytest.fixture(scope="module")
def undisturbed(model: Path, text: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("undisturbed") / "stats"
    assert calibrate_model(model, [text], path, **OPTIONS).resumed_at == 0
    return path.read_bytes()


def start(model: Path, text: Path, stats: Path, memory: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, (model, text, stats, memory))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.ci
@pytest.mark.parametrize("memory", [0, 2 * LARGEST], ids=["in memory", "spooled"])
def test_killed_anywhere_it_goes_on_to_the_same_file(
    model: Path, text: Path, tmp_path: Path, undisturbed: bytes, memory: int
) -> None:
    stats = tmp_path / "stats"
    for n_batches, hessian in [(1, 0.0), (3, 0.013), (2, 0.03)]:
        process = start(model, text, stats, memory)
        for _ in range(n_batches):
            process.stdout.readline()
        time.sleep(hessian)  # somewhere in a batch, or in what is written of it
        process.kill()
        process.communicate()
        assert not stats.exists()
    report = calibrate_model(model, [text], stats, memory=memory or None, **OPTIONS)
    assert 3 <= report.resumed_at < 10
    assert stats.read_bytes() == undisturbed
    assert list(tmp_path.iterdir()) == [stats]


def test_control_c_leaves_what_was_collected(
    model: Path, text: Path, tmp_path: Path, undisturbed: bytes
) -> None:
    process = start(model, text, tmp_path / "stats", 0)
    process.stdout.readline()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode not in (0, -signal.SIGKILL)
    assert os.listdir(tmp_path) == [".stats.spool"]
    told: list[str] = []
    report = calibrate_model(model, [text], tmp_path / "stats", **OPTIONS, tell=told.append)
    assert report.resumed_at >= 1
    assert not_used(tmp_path / ".stats.spool") not in told
    assert (tmp_path / "stats").read_bytes() == undisturbed


def test_sums_that_were_not_saved_yet_are_of_the_same_run(model: Path, text: Path, tmp_path: Path) -> None:
    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        calibrate_model(model, [text], tmp_path / "stats", **OPTIONS, progress=stop)
    report = calibrate_model(model, [text], tmp_path / "stats", **OPTIONS, tell=told.append)
    assert report.resumed_at == 0
    assert told[0].startswith("sums: ")
    assert not_used(tmp_path / ".stats.spool") not in told


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_what_stays_is_named(model: Path, text: Path, tmp_path: Path, number: int, status: int) -> None:
    command = [sys.executable, "-m", "pyquant", "calibrate", model, "--text", text, "-o", tmp_path / "stats"]
    command += ["--ctx", "64", "--chunks", "300"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    spool = tmp_path / ".stats.spool"
    while not spool.exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == status
    how = "interrupted" if number == signal.SIGINT else "terminated"
    sizes, last = said.splitlines()
    assert sizes == f"sums: 2 MB in memory, 0 MB on disk; {tmp_path / 'stats'} will be of 2 MB"
    assert last == f"pyquant: {how}; {spool} holds the sums so far: the same command goes on from there"
    assert list(tmp_path.iterdir()) == [spool]


@pytest.mark.parametrize("left", [b"", b"pqspool1", "cut off", "of another run", "damaged head"])
def test_what_is_no_spool_of_this_run_is_not_taken_up(
    model: Path, text: Path, tmp_path: Path, undisturbed: bytes, left: bytes | str
) -> None:
    stats, spool = tmp_path / "stats", tmp_path / ".stats.spool"
    if isinstance(left, bytes):
        spool.write_bytes(left)
    else:
        process = start(model, text, stats, 0)
        for _ in range(3):
            process.stdout.readline()
        process.kill()
        process.communicate()
        content = bytearray(spool.read_bytes())
        if left == "damaged head":
            content[20] ^= 1
        spool.write_bytes(content[: len(content) - 4096] if left == "cut off" else content)
    other = {"process_output": True} if left == "of another run" else {}
    told: list[str] = []
    report = calibrate_model(model, [text], stats, **OPTIONS, **other, tell=told.append)
    assert report.resumed_at == 0
    assert not_used(spool) in told
    assert other or stats.read_bytes() == undisturbed


def test_a_file_cut_off_anywhere_is_refused(model: Path, text: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats"
    calibrate_model(model, [text], stats, n_ctx=64, n_chunks=1)
    whole = stats.read_bytes()
    assert len(Calibration.read(stats).matrices) == 2 * 8
    last = len(whole) - 32  # what pads the end may be missing
    for size in [*range(0, 6000, 97), *np.linspace(6000, last, 60, dtype=int)]:
        stats.write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            Calibration.read(stats)


def test_statistics_of_a_later_version(model: Path, text: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats"
    calibrate_model(model, [text], stats, n_ctx=64, n_chunks=1)
    key = b"pyquant.calibration.version"
    content = stats.read_bytes()
    at = content.index(key) + len(key) + 4
    stats.write_bytes(content[:at] + b"\x09" + content[at + 1 :])
    with pytest.raises(ModelFileError, match="version 9, this pyquant reads 2"):
        Calibration.read(stats)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30], ids=["NaN", "infinite", "squares overflow"])
def test_activations_that_are_not_finite_name_their_layer(text: Path, tmp_path: Path, value: float) -> None:
    def broken(name: str, x: np.ndarray) -> np.ndarray:
        if name == "blk.1.ffn_norm.weight":
            x[3] = value
        return x

    path = Model(n_layer=2, change=broken).write(tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match=r"what enters blk\.1\.ffn_(gate|up)\.weight is not finite"):
        calibrate_model(path, [text], tmp_path / "stats", n_ctx=64, n_chunks=2)
    assert not (tmp_path / "stats").exists()


def test_inputs_that_are_too_large_are_left_out(text: Path, tmp_path: Path) -> None:
    path, stats, imatrix = (tmp_path / name for name in ("model.gguf", "stats.gguf", "imatrix.gguf"))
    Model(n_layer=2, change=with_too_large_inputs).write(path)
    report = calibrate_model(path, [text], stats, n_ctx=64, n_chunks=2, imatrix=imatrix)
    assert report.left_out == ["blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"]
    assert stats.stat().st_size == report.output_bytes
    known = Calibration.read(stats)
    assert known.why_no_hessian(report.left_out[0]) == "what enters it is not finite, or too large"
    others = {f"blk.{i}.{kind}.weight" for i in range(2) for kind in MATRICES} - set(report.left_out)
    assert set(known.matrices) == set(read_imatrix(ModelFile(imatrix)).weights) == others
    assert all(np.isfinite(known.hessian(name)).all() for name in others)


def test_no_room(model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    free = [2**40, 1000, 1000]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free.pop(0)))
    with pytest.raises(OutputError, match=r"no room: the sums need [\d,]+ bytes beside it .* 1,000 are free"):
        calibrate_model(model, [text], tmp_path / "stats", **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_sums_that_do_not_fit_into_memory_are_refused_before_work(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant.calibration.collect.available_memory", lambda: LARGEST)
    with pytest.raises(NotEnoughMemory, match=r"MB are available; --memory SIZE keeps the rest on disk"):
        calibrate_model(model, [text], tmp_path / "stats", **OPTIONS)
    assert list(tmp_path.iterdir()) == []
    calibrate_model(model, [text], tmp_path / "stats", memory=LARGEST, **OPTIONS)


def test_what_cannot_be_asked_for(model: Path, text: Path, tmp_path: Path) -> None:
    def refused(error: type, match: str, texts: list[Path] | None = None, **options: object) -> None:
        with pytest.raises(error, match=match):
            calibrate_model(model, [text] if texts is None else texts, tmp_path / "stats", **options)

    refused(ConfigError, f"memory: {LARGEST - 1:,} bytes; .* need {LARGEST:,}", memory=LARGEST - 1)
    refused(ConfigError, "text: at least one", texts=[])
    refused(ConfigError, "weight: 2 given for 1 texts", weights=[1, 2])
    refused(ConfigError, "weight: expected a number above 0", weights=[0])
    refused(ConfigError, "ctx: expected a whole number from 16 to 1,048,576, got 15", n_ctx=15)
    (tmp_path / "short.txt").write_text("short")
    refused(TextError, r"short\.txt: too short", texts=[text, tmp_path / "short.txt"])
    refused(OutputError, "is the input, which is never overwritten", imatrix=text, force=True)


@pytest.mark.parametrize("damaged", [b"", b"PK\x03\x04 cut off", "of another model", "gone"])
def test_sums_of_squares_that_cannot_be_used_are_named(
    damaged: bytes | str, model: Path, text: Path, tmp_path: Path
) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_model(model, [text], tmp_path / "stats", **OPTIONS, checkpoint_seconds=0, progress=stop)
    squares = tmp_path / ".stats.squares.npz"
    if damaged == "gone":
        squares.unlink()
    elif isinstance(damaged, str):
        with np.load(squares) as arrays:
            np.savez(squares, **{name: its[..., :1] for name, its in arrays.items()})
    else:
        squares.write_bytes(damaged)
    with pytest.raises(ModelFileError, match=r"\.squares\.npz: what an interrupted run kept .* remove"):
        calibrate_model(model, [text], tmp_path / "stats", **OPTIONS)
    squares.unlink(missing_ok=True)
    (tmp_path / ".stats.spool").unlink()
    assert calibrate_model(model, [text], tmp_path / "stats", **OPTIONS).resumed_at == 0
