"""Files that are not what they should be: nothing but a ModelFileError, whatever is in them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model

TINY = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2, n_vocab=40, tied=True, tokenizer=False)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose header is short."""
    return TINY.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def refuse(path: Path, *words: str) -> None:
    """Opening it raises a ModelFileError of one line that names the file."""
    with pytest.raises(ModelFileError) as raised:
        ModelFile(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_files_that_are_no_gguf(tmp_path: Path) -> None:
    refuse(tmp_path / "missing.gguf", "no such file")
    refuse(tmp_path, "a folder, not a file")
    refuse(tmp_path / ("x" * 300), "File name too long")
    (tmp_path / "empty.gguf").touch()
    refuse(tmp_path / "empty.gguf", "not a readable GGUF file")
    (tmp_path / "text.gguf").write_text("# not a model, but a text\n" * 100)
    refuse(tmp_path / "text.gguf", "not a readable GGUF file", "invalid magic")
    os.mkfifo(tmp_path / "pipe.gguf")
    refuse(tmp_path / "pipe.gguf", "a pipe or device")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(tiny.read_bytes())
    path.chmod(0)
    refuse(path, "Permission denied")


def test_a_name_that_is_not_utf8(tmp_path: Path, tiny: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.gguf")
    path.write_bytes(tiny.read_bytes())
    quantize_model(path, tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))
    assert len(ModelFile(tmp_path / "out.gguf").tensors) == len(ModelFile(tiny).tensors)


def test_a_file_cut_off_at_every_byte_of_its_header(tmp_path: Path, tiny: Path) -> None:
    whole = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(ModelFile(tiny).header.data_offset):
        path.write_bytes(whole[:size])
        refuse(path)


def test_a_file_cut_off_in_its_data(tmp_path: Path, tiny: Path) -> None:
    whole = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(ModelFile(tiny).header.data_offset, len(whole), 97):
        path.write_bytes(whole[:size])
        refuse(path, "cut off: tensor '", f"the file at {size}")
    path.write_bytes(whole + b"more")
    assert len(ModelFile(path).tensors) == len(ModelFile(tiny).tensors)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


U32, TEXT, ARRAY = 4, 8, 9


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(
    name: bytes = b"a.weight", shape: tuple[int, ...] = (32, 2), kind: int = 0, offset: int = 0
) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


TENSOR = tensor()
ARCHITECTURE = pair(b"general.architecture", TEXT, text(b"llama"))


def gguf(
    tensors: Sequence[bytes] = (TENSOR,),
    pairs: Sequence[bytes] = (ARCHITECTURE,),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_pairs: int | None = None,
    data: int = 4096,
) -> bytes:
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_pairs = len(pairs) if n_pairs is None else n_pairs
    header = magic + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join([*pairs, *tensors])
    return header + bytes(-len(header) % 32 + data)


BAD = {
    "magic": (gguf(magic=b"GGML"), "invalid magic"),
    "version 0": (gguf(version=0), "version"),
    "version 1": (gguf(version=1), "no longer supported"),
    "version 4": (gguf(version=4), "version 4"),
    "big endian": (gguf(version=3 << 24), "endian"),
    "more tensors": (gguf(n_tensors=3), ""),
    "very many tensors": (gguf(n_tensors=2**63 - 1), "number of tensors"),
    "negative tensors": (gguf(n_tensors=2**64 - 1), "number of tensors"),
    "more keys": (gguf(n_pairs=3), ""),
    "very many keys": (gguf(n_pairs=2**62), "number of key value pairs"),
    "a key without a name": (gguf(pairs=[pair(b"", U32, bytes(4))]), "key 0 is empty"),
    "a key of a zero byte": (gguf(pairs=[pair(b"\0a", U32, bytes(4))]), "metadata key 0 is empty"),
    "a key that is not UTF-8": (gguf(pairs=[pair(b"\xff", U32, bytes(4))]), "metadata key 0 is not UTF-8"),
    "a key twice": (gguf(pairs=[pair(b"k", U32, bytes(4))] * 2), "duplicate key 'k'"),
    "a key twice but for a zero byte": (
        gguf(
            pairs=[
                pair(b"general.alignment", U32, b"\x20\0\0\0"),
                pair(b"general.alignment\0", TEXT, text(b"")),
            ]
        ),
        "more than one metadata key is named 'general.alignment'",
    ),
    "a key of unknown type": (gguf(pairs=[pair(b"k", 99, bytes(4))]), "invalid GGUF type 99"),
    "an array of arrays": (
        gguf(pairs=[pair(b"k", ARRAY, struct.pack("<IQ", ARRAY, 1))]),
        "invalid GGUF type",
    ),
    "a long key": (gguf(pairs=[struct.pack("<Q", 2**40)]), "more than 67108864 bytes"),
    "a long text": (gguf(pairs=[pair(b"k", TEXT, struct.pack("<Q", 2**62))]), "more than 67108864 bytes"),
    "a long array": (gguf(pairs=[pair(b"k", ARRAY, struct.pack("<IQ", U32, 2**61))]), ""),
    "a long array of texts": (gguf(pairs=[pair(b"k", ARRAY, struct.pack("<IQ", TEXT, 2**58))]), ""),
    "alignment 0": (gguf(pairs=[pair(b"general.alignment", U32, bytes(4))]), "not a power of 2"),
    "alignment 24": (gguf(pairs=[pair(b"general.alignment", U32, b"\x18\0\0\0")]), "not a power of 2"),
    "alignment as text": (gguf(pairs=[pair(b"general.alignment", TEXT, text(b"32"))]), "must be of type"),
    "a long tensor name": (gguf([tensor(b"n" * 64)]), "too long"),
    "a tensor without a name": (gguf([tensor(b"")]), "tensor 0 is empty"),
    "a tensor name that is not UTF-8": (gguf([tensor(b"\xff")]), "tensor 0 is not UTF-8"),
    "a tensor twice": (gguf([tensor(), tensor(offset=256)]), "duplicate tensor name 'a.weight'"),
    "a tensor twice but for a zero byte": (
        gguf([tensor(b"a\0b"), tensor(b"a\0c", offset=256)]),
        "more than one tensor is named 'a'",
    ),
    "five dimensions": (gguf([tensor(shape=(32, 1, 1, 1, 1))]), "number of dimensions"),
    "no weights": (gguf([tensor(shape=(32, 0))]), "tensor 'a.weight' is empty: its shape is [32, 0]"),
    "rows of none": (gguf([tensor(shape=(0, 5))]), "is empty"),
    "rows of none, very many": (gguf([tensor(shape=(0, 2**62))]), "is empty"),
    "a negative length": (gguf([tensor(shape=(2**64 - 32,))]), "number of elements"),
    "lengths that overflow": (gguf([tensor(shape=(2**40, 2**40))]), "overflow"),
    "bytes that overflow": (gguf([tensor(shape=(2**62,))]), ""),
    "more rows than data": (gguf([tensor(shape=(32, 33))]), "cut off: tensor 'a.weight' ends at byte"),
    "an unknown type": (gguf([tensor(kind=999)]), "invalid ggml type 999"),
    "a negative type": (gguf([tensor(kind=2**32 - 1)]), "invalid ggml type -1"),
    "a type that GGML has dropped": (gguf([tensor(kind=4)]), ""),
    "rows that its blocks do not divide": (gguf([tensor(shape=(33, 2), kind=2)]), "block size"),
    "an offset elsewhere": (gguf([tensor(offset=32)]), "has offset 32, expected 0"),
    "an offset beyond the file": (gguf([tensor(offset=2**63)]), "has offset"),
    "tensors that overlap": (gguf([tensor(), tensor(b"b.weight")]), "has offset 0, expected 256"),
}


@pytest.mark.parametrize("name", BAD)
def test_headers_that_lie(tmp_path: Path, name: str) -> None:
    content, word = BAD[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    refuse(path, word)


def test_the_header_that_the_lies_are_made_from(tmp_path: Path) -> None:
    (tmp_path / "good.gguf").write_bytes(gguf())
    assert [t.shape for t in ModelFile(tmp_path / "good.gguf").tensors] == [(32, 2)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "no 'general.architecture'"),
        ([pair(b"general.architecture", U32, bytes(4))], "no 'general.architecture'"),
        ([pair(b"general.architecture", TEXT, text(b"\xffa"))], "no 'general.architecture'"),
        ([pair(b"general.architecture", TEXT, text(b"nonsuch"))], "unknown model architecture: 'nonsuch'"),
        ([ARCHITECTURE], r"cannot plan its quantization: key not found in model: llama\.context_length"),
    ],
)
def test_metadata_that_makes_no_model(tmp_path: Path, pairs: list[bytes], message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf(pairs=pairs))
    with pytest.raises(ModelFileError, match=message):
        quantize_model(path, tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(5, b"\xff\xff\xff\xff"), (10, struct.pack("<Q", 2**40)), (TEXT, text(b"many")), (6, b"\0\0\xc0\x7f")],
    ids=["-1", "2**40", "text", "nan"],
)
def test_hyperparameters_that_are_no_numbers(tmp_path: Path, kind: int, value: bytes) -> None:
    path = tmp_path / "bad.gguf"
    others = [pair(b"llama." + key, U32, b"\x40\0\0\0") for key in (b"context_length", b"embedding_length")]
    path.write_bytes(gguf(pairs=[ARCHITECTURE, *others, pair(b"llama.block_count", kind, value)]))
    with pytest.raises(ModelFileError, match=rf"{path}: .*llama\.block_count (is|has wrong type) \S+"):
        quantize_model(path, tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))


def shards(tmp_path: Path) -> list[Path]:
    return ModelFile(TINY.write(tmp_path / "s.gguf", tensors_per_shard=4)).paths


@pytest.mark.parametrize(
    ("change", "open_", "words"),
    [
        (lambda paths: paths[1].unlink(), 0, ["-00002-of-00003.gguf: no such file"]),
        (
            lambda paths: paths[1].write_bytes(paths[2].read_bytes()),
            0,
            ["-00002-of-00003.gguf: shard 2 of 3 by its name"],
        ),
        (lambda paths: None, 1, ["shard 2 of 3; give the first one, s-00001-of-00003.gguf"]),
        (
            lambda paths: paths[0].rename(paths[0].with_name("first.gguf")),
            None,
            ["one of 3 shards", "-00001-of-"],
        ),
        (
            lambda paths: paths[2].write_bytes(paths[2].read_bytes()[:-999]),
            0,
            ["-00003-of-00003.gguf: cut off"],
        ),
    ],
    ids=["missing", "twice", "not the first", "renamed", "cut off"],
)
def test_shards(
    tmp_path: Path, change: Callable[[list[Path]], None], open_: int | None, words: list[str]
) -> None:
    paths = shards(tmp_path)
    assert len(paths) == 3
    change(paths)
    with pytest.raises(ModelFileError) as raised:
        ModelFile(tmp_path / "first.gguf" if open_ is None else paths[open_])
    for word in words:
        assert word in str(raised.value)
