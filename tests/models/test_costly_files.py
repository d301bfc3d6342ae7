"""Small files that ask for much: what their metadata may cost in time and memory is bounded."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from pyquant import _core
from pyquant.models.pqz.block_layout import TEXT, kernel
from pyquant.models.pqz.index import HEAD, Index, PqzTensor, write_index
from pyquant.models.pqz.pack import pack_model
from tests.support.command import run
from tests.support.models import Model, resealed

MB = 1 << 20
SECONDS = 10
MEASURED = """
import resource, sys, time
from pyquant.errors import ModelFileError
from pyquant.models.info import model_info
begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print(len(model_info(sys.argv[1]).metadata), "keys")
except ModelFileError as error:
    print(error)
print(time.process_time() - begin, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def described(path: Path) -> str:
    """Give what reading the headers says; it takes at most 10 s, and memory for twice the file and 200 MB."""
    ran = run(script=MEASURED.replace("sys.argv[1]", repr(str(path))))
    assert ran.returncode == 0, ran.stderr
    said, cost = ran.stdout.splitlines()
    seconds, megabytes = map(float, cost.split())
    assert seconds < SECONDS
    assert megabytes < 200 + 2 * path.stat().st_size / MB
    return said


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def array_of_texts(n: int) -> bytes:
    return text(b"texts") + struct.pack("<IIQ", 9, 8, n) + bytes(8 * n)


def gguf(path: Path, pairs: list[bytes], n_pairs: int | None = None, tensors: Sequence[bytes] = ()) -> Path:
    counts = struct.pack("<IQQ", 3, len(tensors), len(pairs) if n_pairs is None else n_pairs)
    path.write_bytes(b"GGUF" + counts + b"".join([*pairs, *tensors]))
    return path


def tensor(number: int) -> bytes:
    return text(b"%d" % number) + struct.pack("<IQIQ", 1, 8, 0, 32 * number)


def pqz(path: Path, description: bytes) -> Path:
    """A pqz file without frames whose description is this."""
    coded = _core.encode_frame(kernel(TEXT), description)
    index = Index(0, {}, {}, [])
    _, version, _, _, _, _, _, sha256 = HEAD.unpack_from(write_index(index, b"", [], bytes(32)))
    head = HEAD.pack(b"PYQUANTZ", version, 0, len(coded), len(description), 0, 0, sha256)
    path.write_bytes(resealed(head + bytes(8) + coded))
    return path


@pytest.mark.ci
def test_headers_with_more_than_may_be(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    assert "number of texts in arrays is 3000000" in described(gguf(path, [array_of_texts(3_000_000)]))
    assert "number of key value pairs is 50000" in described(gguf(path, [], 50_000))
    assert "number of tensors is 40000" in described(
        gguf(path, [], tensors=[tensor(i) for i in range(40_000)])
    )
    sparse = gguf(path, [text(b"bytes") + struct.pack("<IIQ", 9, 0, 1 << 30)])
    with sparse.open("r+b") as file:
        file.truncate(2 << 30)
    assert "its header has more than" in described(sparse)


@pytest.mark.slow
def test_headers_with_as_much_as_may_be(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    assert described(gguf(path, [array_of_texts(1 << 21)])) == "1 keys"
    keys = [text(b"key.of.a.long.name.%d" % i) + struct.pack("<IB", 0, 1) for i in range(40_000)]
    assert described(gguf(path, keys)) == "40000 keys"
    many = gguf(path, [], tensors=[tensor(i) for i in range(1 << 15)])
    with many.open("r+b") as file:
        file.truncate(many.stat().st_size + 32 * (1 << 15) + 32)
    assert described(many) == "0 keys"


@pytest.mark.slow
def test_a_packed_header(tmp_path: Path) -> None:
    """A few kB, which expand to a header of 16 MB within the bounds, and to one of 32 MB beyond them."""
    for n, says in ((1 << 21, "1 keys"), (1 << 22, "number of texts in arrays is 4194304")):
        packed = pack_anything(gguf(tmp_path / "m.gguf", [array_of_texts(n)]), tmp_path / "m.pqz")
        assert packed.stat().st_size < 20_000
        assert says in described(packed)


def pack_anything(source: Path, output: Path) -> Path:
    """Packs a file, whether our reader would open it or not, as bytes outside of tensors."""
    data = source.read_bytes()
    index = Index(len(data), {}, {}, [])
    frames = [_core.encode_frame(kernel(TEXT), data[f.begin : f.begin + f.n_bytes]) for f in index.frames()]
    entries = [(len(frame), _core.checksum(frame)) for frame in frames]
    description = _core.encode_frame(kernel(TEXT), index.description())
    output.write_bytes(write_index(index, description, entries, bytes(32)) + b"".join(frames))
    return output


@pytest.mark.ci
@pytest.mark.parametrize(
    ("n", "says"),
    [(80_000, "not a readable GGUF file"), (600_000, "a description of")],
)
def test_descriptions(tmp_path: Path, n: int, says: str) -> None:
    one = PqzTensor(name="x", type="F32", begin=0, n_bytes=0).model_dump()
    layout = {"F32": [{"content": "numbers", "length": 4, "bits": 8}]}
    whole = {"tools": {}, "frame_bytes": 1 << 20, "layouts": layout, "tensors": [one] * n}
    path = pqz(tmp_path / "many.pqz", json.dumps(whole).encode())
    assert path.stat().st_size < 50_000
    assert says in described(path)


@pytest.mark.slow
def test_descriptions_of_other_things(tmp_path: Path) -> None:
    fields = [{"content": "codes", "length": 1, "bits": 8}] * 64
    for whole in (
        {"tools": {str(i): "" for i in range(300_000)}, "layouts": {}},
        {"tools": {}, "layouts": {str(i): fields for i in range(2_000)}},
    ):
        content = {**whole, "frame_bytes": 1, "tensors": []}
        path = pqz(tmp_path / "other.pqz", json.dumps(content).encode())
        assert "its index is not one" in described(path)


def test_an_index_that_disagrees_with_the_metadata(tmp_path: Path) -> None:
    model = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2, tied=True, n_vocab=300)
    data = model.write(tmp_path / "m.gguf").read_bytes()
    other = data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_w.weight")
    (tmp_path / "m.gguf").write_bytes(other)
    pack_model(tmp_path / "m.gguf", tmp_path / "other.pqz")
    pack_model(model.write(tmp_path / "m.gguf"), tmp_path / "m.pqz")
    packed = (tmp_path / "m.pqz").read_bytes(), (tmp_path / "other.pqz").read_bytes()
    mixed = mix(*packed)
    (tmp_path / "mixed.pqz").write_bytes(mixed)
    assert "its index and its metadata disagree on tensor 'blk.0.attn_w.weight'" in described(
        tmp_path / "mixed.pqz"
    )


def mix(index: bytes, frames: bytes) -> bytes:
    """The description of one packed file with the frame table and frames of another."""
    ours, theirs = HEAD.unpack_from(index), HEAD.unpack_from(frames)
    begin = HEAD.size + 8
    head = HEAD.pack(*theirs[:3], ours[3], ours[4], *theirs[5:])
    return resealed(head + bytes(8) + index[begin : begin + ours[3]] + frames[begin + theirs[3] :])
