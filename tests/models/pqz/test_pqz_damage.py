"""Packed models that are not what they should be, and outputs that end early."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import pyquant
from pyquant import _core
from pyquant.errors import ModelFileError, OutputError
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.as_gguf import as_gguf
from pyquant.models.pqz.block_layout import TEXT, kernel
from pyquant.models.pqz.index import FRAME, HEAD, HEAD_BYTES, read_head
from pyquant.models.pqz.pack import pack_model
from pyquant.models.pqz.pqz_file import PqzFile
from pyquant.models.pqz.unpack import unpack_model
from tests.support.models import Model, resealed


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model of some frames."""
    folder = tmp_path_factory.mktemp("packed")
    pack_model(Model().write(folder / "m.gguf"), folder / "m.pqz")
    return folder / "m.pqz"


def refused(damaged: Path, folder: Path) -> str:
    """Give what unpacking says; nothing may be written."""
    before = sorted(folder.iterdir())
    with pytest.raises(ModelFileError) as raised:
        unpack_model(damaged, folder / "out.gguf")
    assert sorted(folder.iterdir()) == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


def places(packed: Path) -> list[tuple[int, str]]:
    """Bytes of every region of the file, and what is said if they are damaged."""
    whole = PqzFile(packed)
    head = [(at, "") for at in range(HEAD_BYTES)]
    index = [(at, "its index is damaged") for at in range(HEAD_BYTES, whole._frames[0].coded_begin, 7)]
    frames = [
        (at, whole._name(frame.part) + " is damaged")
        for frame in whole._frames
        for at in (frame.coded_begin, frame.coded_begin + frame.coded_bytes // 2)
        + (frame.coded_begin + frame.coded_bytes - 1,)
    ]
    return head + index + frames


def test_a_flipped_bit_anywhere(packed: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = bytearray(packed.read_bytes())
    for at, says in places(packed):
        bit = 1 << int(rng.integers(8))
        data[at] ^= bit
        (tmp_path / "damaged.pqz").write_bytes(data)
        assert says in refused(tmp_path / "damaged.pqz", tmp_path)
        data[at] ^= bit


def test_readers_refuse_it_too(packed: Path, tmp_path: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[-1] ^= 1
    damaged = tmp_path / "damaged.pqz"
    damaged.write_bytes(data)
    last = PqzFile(packed).index.tensors[-1].name
    stock = packed.with_suffix(".gguf")
    text = tmp_path / "text.txt"
    text.write_text("the animal " * 400)
    for use in (
        lambda: pyquant.measure_error(stock, damaged),
        lambda: pyquant.count_codes(damaged, pyquant.make_mode({"mode": "q8_0", "pure": True})),
        lambda: pyquant.measure_perplexity(damaged, text, n_ctx=64),
    ):
        with pytest.raises(ModelFileError, match=f"tensor '{last}' is damaged"):
            use()


def test_cut_off_anywhere(packed: Path, tmp_path: Path) -> None:
    data, damaged = packed.read_bytes(), tmp_path / "damaged.pqz"
    index_end = PqzFile(packed)._frames[0].coded_begin
    last = PqzFile(packed).index.tensors[-1].name
    for size in [
        0,
        1,
        7,
        8,
        HEAD_BYTES - 1,
        HEAD_BYTES,
        index_end - 1,
        index_end,
        len(data) // 2,
        len(data) - 1,
    ]:
        damaged.write_bytes(data[:size])
        said = refused(damaged, tmp_path)
        assert size == 0 or size >= len(data) // 2 or "cut off" in said or "not a packed" in said
        assert size < index_end or "cut off: " in said
    assert f"tensor '{last}'" in said
    damaged.write_bytes(data + b"x")
    assert "1 bytes too many" in refused(damaged, tmp_path)


def test_places_that_hold_no_packed_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pqz")
    for name, says in {"missing": "No such file", "": "not a file", "pipe.pqz": "not a file"}.items():
        assert says in refused(tmp_path / name, tmp_path)


def test_a_later_version(packed: Path, tmp_path: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[8:12] = (7).to_bytes(4, "little")
    (tmp_path / "later.pqz").write_bytes(resealed(data))
    said = refused(tmp_path / "later.pqz", tmp_path)
    assert "of version 7 of the format; this pyquant reads version 2" in said
    with pytest.raises(ModelFileError, match="of version 7"):
        ModelFile(tmp_path / "later.pqz")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors[0].update(type="Q9_9"), "has no layout"),
        (lambda tensors: tensors[0].update(begin=2**61), "is not where it can be"),
        (lambda tensors: tensors[0].update(n_bytes=3), "has no whole number of blocks"),
        (lambda tensors: tensors.pop(), "frames where its tensors need"),
        (lambda tensors: tensors[0].update(begin=-1), "its index is not one"),
        (lambda tensors: tensors.clear(), "frames where its tensors need"),
    ],
)
def test_an_index_that_contradicts_itself(packed: Path, tmp_path: Path, change, says: str) -> None:
    data = packed.read_bytes()
    head = read_head(data, len(data))
    end = HEAD_BYTES + head.coded_description
    index = json.loads(_core.decode_frame(kernel(TEXT), data[HEAD_BYTES:end], head.description))
    change(index["tensors"])
    description = json.dumps(index).encode()
    coded = _core.encode_frame(kernel(TEXT), description)
    magic, version, n, _, _, *rest = HEAD.unpack_from(data)
    begin = HEAD.pack(magic, version, n, len(coded), len(description), *rest)
    (tmp_path / "odd.pqz").write_bytes(resealed(begin + bytes(8) + coded + data[end:]))
    assert says in refused(tmp_path / "odd.pqz", tmp_path)


def with_another_frame(packed: Path) -> bytes:
    """The file with another last weight under checksums that are right; only the SHA-256 is not."""
    data, whole = packed.read_bytes(), PqzFile(packed)
    frame, layout = whole._frames[-1], whole._layouts[-1]
    content = bytearray(_core.decode_frame(layout, data[frame.coded_begin :], frame.n_bytes))
    content[-1] ^= 1
    coded = _core.encode_frame(layout, bytes(content))
    changed = bytearray(data[: frame.coded_begin] + coded)
    FRAME.pack_into(changed, whole._frames[0].coded_begin - FRAME.size, len(coded), 0)
    return resealed(changed)


def test_other_weights_under_right_checksums(packed: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pqz"
    damaged.write_bytes(with_another_frame(packed))
    PqzFile(damaged).verify(1)  # frame by frame nothing is wrong
    for progress in (None, lambda done, total, what: None):
        with pytest.raises(ModelFileError, match="SHA-256 of what it expands to begins with"):
            unpack_model(damaged, tmp_path / "out.gguf", progress=progress)
    assert sorted(tmp_path.iterdir()) == [damaged]
    with (
        pytest.raises(ModelFileError, match="SHA-256 of what it expands to begins with"),
        as_gguf(ModelFile(damaged)),
    ):
        pass


def test_a_model_without_tensors(tmp_path: Path) -> None:
    stock = tmp_path / "vocabulary.gguf"
    header = _core.Gguf()
    header.set_text("general.architecture", "llama")
    stock.write_bytes(header.header())
    pack_model(stock, tmp_path / "vocabulary.pqz")
    unpack_model(tmp_path / "vocabulary.pqz", tmp_path / "out.gguf", progress=lambda done, total, what: None)
    assert (tmp_path / "out.gguf").read_bytes() == stock.read_bytes()


def test_no_room(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9 - 1000, 1000))
    size = PqzFile(packed).n_bytes
    with pytest.raises(OutputError, match=rf"needs {size:,} bytes, 1,000 are free"):
        unpack_model(packed, tmp_path / "out.gguf")
    with (
        pytest.raises(OutputError, match=rf"expands to {size:,} bytes, 1,000 are free .* TMPDIR"),
        as_gguf(ModelFile(packed)),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up(tmp_path: Path, small_disk: Path, small_model: Path) -> None:
    stock = Model(n_embd=256, n_ff=512).write(tmp_path / "larger.gguf")
    with pytest.raises(OutputError, match=r"out\.pqz: No space left on device"):
        pack_model(stock, small_disk / "out.pqz")
    assert not list(small_disk.iterdir())
    pack_model(stock, stock.with_suffix(".pqz"))
    with pytest.raises(OutputError, match="are free in"):
        unpack_model(stock.with_suffix(".pqz"), small_disk / "out.gguf")
    pack_model(small_model, small_disk / "out.pqz")


def test_no_room_for_the_metadata(tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = _core.Gguf()
    header.set_text("general.architecture", "llama")
    header.set_text("general.description", "x" * (300 << 10))
    (tmp_path / "m.gguf").write_bytes(header.header())
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    with pytest.raises(
        OutputError, match=f"{small_disk}: No space left on device while writing the metadata"
    ):
        pack_model(tmp_path / "m.gguf", tmp_path / "out.pqz")
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "m.gguf"}


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_a_run_that_is_ended(tmp_path: Path, command: str, number: int) -> None:
    stock = Model(n_embd=1024, n_ff=2048, n_layer=2, n_head=8).write(tmp_path / "m.gguf")
    pack_model(stock, tmp_path / "m.pqz")
    source = {"pack": stock, "unpack": tmp_path / "m.pqz"}[command]
    line = [sys.executable, "-m", "pyquant", command, source, tmp_path / "out", "--threads", "1"]
    partial = tmp_path / ".out.partial"
    expected = {"pack": tmp_path / "m.pqz", "unpack": stock}[command]
    for delay in (0, 0.03, 0.1):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not partial.exists() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(delay)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        if (tmp_path / "out").exists():  # it was quicker: the signal met Python on its way out
            assert (tmp_path / "out").read_bytes() == expected.read_bytes()
            (tmp_path / "out").unlink()
            continue
        assert process.returncode == (130 if number == signal.SIGINT else -9), said
        assert number == signal.SIGKILL or not partial.exists()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    assert not partial.exists()
    assert (tmp_path / "out").read_bytes() == expected.read_bytes()


def test_nothing_is_left_of_expanded_models(packed: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = len(os.listdir("/proc/self/fd"))
    with as_gguf(ModelFile(packed)) as stock:
        assert stock.read_bytes() == packed.with_suffix(".gguf").read_bytes()
        assert not list(tmp_path.iterdir())
    assert len(os.listdir("/proc/self/fd")) == files
