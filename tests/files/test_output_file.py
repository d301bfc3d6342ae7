"""An output appears complete or not at all, and never instead of something else."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant import _core
from pyquant.errors import OutputError
from pyquant.files.output_file import OutputFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model

Q4_0 = make_mode({"mode": "q4_0"})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_appears_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with OutputFile(out, 8, sources=[], force=False) as file:
        file.write(b"end", 5)
        assert not out.exists()
        file.write(b"begin", 0)
        file.commit()
    assert out.read_bytes() == b"beginend"
    assert names(tmp_path) == ["out"]


def test_it_does_not_appear_without_commit(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out", 8, sources=[], force=False):
        pass
    with pytest.raises(ZeroDivisionError), OutputFile(tmp_path / "out", 8, sources=[], force=False):
        raise ZeroDivisionError
    assert names(tmp_path) == []


@pytest.mark.parametrize("how", ["same", "symbolic link", "hard link", "other spelling", "linked folder"])
def test_the_input_is_never_overwritten(tmp_path: Path, small_model: Path, how: str) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(small_model.read_bytes())
    output = tmp_path / "link.gguf"
    if how == "same":
        output = source
    elif how == "symbolic link":
        output.symlink_to(source)
    elif how == "hard link":
        output.hardlink_to(source)
    elif how == "other spelling":
        output = tmp_path / ".." / tmp_path.name / "model.gguf"
    else:
        (tmp_path / "folder").symlink_to(tmp_path)
        output = tmp_path / "folder" / "model.gguf"
    for force in (False, True):
        with pytest.raises(OutputError, match="is the input, which is never overwritten"):
            quantize_model(source, output, Q4_0, force=force)
    assert source.read_bytes() == small_model.read_bytes()


def test_a_shard_is_input_too(tmp_path: Path) -> None:
    first = Model(n_vocab=300).write(tmp_path / "s.gguf", tensors_per_shard=10)
    second = sorted(tmp_path.iterdir())[1]
    with pytest.raises(OutputError, match="is the input"):
        quantize_model(first, second, Q4_0, force=True)


def test_what_exists_stays_unless_forced(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")
    with pytest.raises(OutputError, match=r"out\.gguf: exists; --force replaces it"):
        quantize_model(small_model, out, Q4_0)
    assert out.read_text() == "precious"
    quantize_model(small_model, out, Q4_0, force=True)
    assert out.read_bytes()[:4] == b"GGUF"
    assert names(tmp_path) == ["out.gguf"]


def test_a_link_to_nothing_stays_unless_forced(tmp_path: Path, small_model: Path) -> None:
    out, target = tmp_path / "out.gguf", tmp_path / "not-mounted" / "out.gguf"
    out.symlink_to(target)
    with pytest.raises(OutputError, match=f"a link to {target}, which is not there; --force replaces it"):
        quantize_model(small_model, out, Q4_0)
    assert out.is_symlink()
    quantize_model(small_model, out, Q4_0, force=True)
    assert not out.is_symlink()


def test_what_exists_stays_if_replacing_it_fails(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_text("precious")

    def fail(*progress: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quantize_model(small_model, out, Q4_0, force=True, progress=fail)
    assert out.read_text() == "precious"
    assert names(tmp_path) == ["out.gguf"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no/such/out.gguf", "the folder .*no/such does not exist"),
        (".", "a folder; give the file's name too"),
        ("/dev/null", "not a file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_places_where_no_file_can_be(tmp_path: Path, small_model: Path, output: str, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        quantize_model(small_model, tmp_path / output, Q4_0, force=True)
    assert names(tmp_path) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path, small_model: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        quantize_model(small_model, tmp_path / "out.gguf", Q4_0)


def test_two_writers_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with OutputFile(out, 3, sources=[], force=False) as first:
        with pytest.raises(OutputError, match="another process is writing it"):
            OutputFile(out, 3, sources=[], force=True)
        first.write(b"abc", 0)
        first.commit()
    assert out.read_bytes() == b"abc"


def test_a_writer_that_finishes_while_another_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    first = OutputFile(out, 3, sources=[], force=False)
    first.write(b"abc", 0)
    opened = os.open

    def open_then_finish(path, *arguments):
        file = opened(path, *arguments)
        first.commit()
        return file

    monkeypatch.setattr(os, "open", open_then_finish)
    with pytest.raises(OutputError, match="another process is writing it"):
        OutputFile(out, 3, sources=[], force=True)
    monkeypatch.undo()
    assert out.read_bytes() == b"abc"


def test_a_run_takes_over_what_a_killed_one_left(tmp_path: Path, small_model: Path) -> None:
    (tmp_path / ".out.gguf.partial").write_bytes(b"x" * 10**6)
    quantize_model(small_model, tmp_path / "out.gguf", Q4_0)
    quantize_model(small_model, tmp_path / "expected.gguf", Q4_0)
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "expected.gguf").read_bytes()
    assert names(tmp_path) == ["expected.gguf", "out.gguf"]


def test_more_than_the_disk_has(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"out: needs [\d,]{20,} bytes, [\d,]+ are free in"):
        OutputFile(tmp_path / "out", 2**62, sources=[], force=False)
    assert names(tmp_path) == []


def test_a_limit_on_the_size_of_files(tmp_path: Path, small_model: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="File too large"):
            quantize_model(small_model, tmp_path / "out.gguf", Q4_0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_ctrl_c_while_room_is_taken(tmp_path: Path, monkeypatch) -> None:
    def interrupted(file: int, size: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_core, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OutputFile(tmp_path / "out", 8, sources=[], force=False)
    assert names(tmp_path) == []


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "other").write_bytes(b"x" * (200 << 10))


def test_room_is_taken_before_it_is_written(small_disk: Path, generated) -> None:
    source, out = generated("f32, rows of 64 and 96"), small_disk / "out.gguf"
    quantize_model(source, out, Q4_0, progress=lambda *_: fill(small_disk))
    again = small_disk.with_name("again.gguf")
    quantize_model(source, again, Q4_0)
    assert out.read_bytes() == again.read_bytes()


def test_a_disk_that_fills_up_where_no_room_can_be_taken(small_disk: Path, generated, monkeypatch) -> None:
    monkeypatch.setattr(_core, "reserve", os.ftruncate)
    source = generated("f32, rows of 64 and 96")
    with pytest.raises(OutputError, match=r"No space left on device while writing tensor '.*'"):
        quantize_model(source, small_disk / "out.gguf", Q4_0, progress=lambda *_: fill(small_disk))
    assert names(small_disk) == ["other"]
    with pytest.raises(OutputError, match="are free in"):
        quantize_model(source, small_disk / "out.gguf", Q4_0)
    (small_disk / "other").unlink()
    quantize_model(source, small_disk / "out.gguf", Q4_0)


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose embeddings take a second or more to become IQ4_NL."""
    model = Model(n_embd=256, n_ff=256, n_layer=1, n_vocab=30_000, tied=True, type=Type.F16, tokenizer=False)
    return model.write(tmp_path_factory.mktemp("slow") / "slow.gguf")


@pytest.mark.parametrize(
    ("number", "status", "left"),
    [(signal.SIGKILL, -9, [".out.gguf.partial"]), (signal.SIGINT, 130, []), (signal.SIGTERM, -15, [])],
)
def test_a_run_that_is_ended(tmp_path: Path, slow_model: Path, number: int, status: int, left) -> None:
    out = tmp_path / "out.gguf"
    command = [sys.executable, "-m", "pyquant", "quantize", slow_model, out]
    command += ["--mode", "ggml:IQ4_NL", "--pure", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / ".out.gguf.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.1)
    process.send_signal(number)
    sent = time.monotonic()
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - sent < 5
    assert process.returncode == status, said
    if number != signal.SIGKILL:
        how = "interrupted" if number == signal.SIGINT else "terminated"
        assert said == f"pyquant: {how}; nothing half-written is left\n"
    assert not out.exists()
    assert names(tmp_path) == left
    quantize_model(slow_model, out, Q4_0)
    assert names(tmp_path) == ["out.gguf"]


def test_ctrl_c_while_the_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.open

    def interrupted(path: Path, *how: int) -> int:
        os.close(make(path, *how))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OutputFile(tmp_path / "out", 10, sources=[], force=False)
    assert names(tmp_path) == []


def test_ctrl_c_does_not_take_away_what_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OutputFile(tmp_path / "out", 10, sources=[], force=False):

        def interrupted(path: Path, *how: int) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "open", interrupted)
        with pytest.raises(KeyboardInterrupt):
            OutputFile(tmp_path / "out", 10, sources=[], force=False)
        assert names(tmp_path) == [".out.partial"]
