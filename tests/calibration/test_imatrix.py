"""Importance matrices: both formats, llama-imatrix's own, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGUFWriter

from pyquant import _core
from pyquant.calibration import imatrix
from pyquant.calibration.imatrix import read_imatrix
from pyquant.calibration.sums import importance_of
from pyquant.data import model_path
from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import Model
from tests.support.oracle import Oracle


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = Model(
        n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2, n_vocab=40, tied=True, tokenizer=False
    )
    return model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def write_imatrix(path: Path, model: Path) -> Path:
    """Writes one for three tensors of the model; GGUF, or by its ending .dat the older format."""
    matrices = [t for t in ModelFile(model).tensors if t.layer == 0 and len(t.shape) > 1][:3]
    ones = {t.name: np.ones(t.n_per_row, np.float32) for t in matrices}
    if path.suffix == ".dat":
        content = struct.pack("<i", len(ones))
        for name, x in ones.items():
            content += (
                struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 3, len(x)) + x.tobytes()
            )
        path.write_bytes(content + struct.pack("<ii", 7, 5) + b"a.txt")
        return path
    writer = GGUFWriter(path, "llama")
    writer.add_array("imatrix.datasets", ["a.txt"])
    writer.add_uint32("imatrix.chunk_count", 7)
    writer.add_uint32("imatrix.chunk_size", 64)
    for name, x in ones.items():
        writer.add_tensor(f"{name}.in_sum2", x[None])
        writer.add_tensor(f"{name}.counts", np.ones((1, 1), np.float32))
    finish(writer)
    return path


@pytest.mark.parametrize("name", ["i.gguf", "i.dat"])
def test_an_importance_matrix_cut_off_anywhere(tmp_path: Path, tiny: Path, name: str) -> None:
    whole = write_imatrix(tmp_path / name, tiny).read_bytes()
    matrix = read_imatrix(tmp_path / name)
    assert (len(matrix.weights), matrix.n_chunks, matrix.datasets) == (3, 7, ["a.txt"])
    # GGUF pads its end to 32 bytes; in the older format, the last 13 bytes say where the matrices are from.
    whole_enough = range(len(whole) - (28 if name == "i.gguf" else 13), len(whole))
    for size in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:size])
        if size not in whole_enough:
            with pytest.raises(ModelFileError):
                read_imatrix(tmp_path / name)


@pytest.mark.oracle
def test_the_end_of_the_older_format_may_be_missing(oracle: Oracle, tmp_path: Path) -> None:
    """llama-quantize takes what is there, half a number of chunks too."""
    model = Model(n_layer=1).write(tmp_path / "model.gguf")
    matrix = write_imatrix(tmp_path / "i.dat", model)
    whole = matrix.read_bytes().replace(struct.pack("<i", 7), struct.pack("<i", 0x10203))
    for missing in range(14):
        matrix.write_bytes(whole[: len(whole) - missing])
        mode = make_mode({"mode": "ggml:Q4_0", "imatrix": matrix})
        quantize_model(model, tmp_path / "ours.gguf", mode, force=True)
        theirs = oracle.quantize(model, tmp_path / "theirs.gguf", "Q4_0", "--imatrix", matrix)
        assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes(), missing


@pytest.mark.oracle
def test_counts_of_chunks_beyond_31_bits(oracle: Oracle, tmp_path: Path) -> None:
    """llama-quantize reads 2^32 - 1 chunks as -1, and does not write them."""
    model = Model(n_layer=1).write(tmp_path / "model.gguf")
    matrix = write_imatrix(tmp_path / "i.gguf", model)
    count = struct.pack("<I", 7)
    key = b"imatrix.chunk_count" + struct.pack("<I", 4)  # of type u32
    for n_chunks in (2**31 - 1, 2**31, 2**32 - 1):
        whole = matrix.read_bytes()
        matrix.write_bytes(whole.replace(key + count, key + struct.pack("<I", n_chunks)))
        count = struct.pack("<I", n_chunks)
        mode = make_mode({"mode": "ggml:Q4_0", "imatrix": matrix})
        quantize_model(model, tmp_path / "ours.gguf", mode, force=True)
        theirs = oracle.quantize(model, tmp_path / "theirs.gguf", "Q4_0", "--imatrix", matrix)
        assert (tmp_path / "ours.gguf").read_bytes() == theirs.read_bytes(), n_chunks


@pytest.mark.parametrize("key", imatrix.KEYS)
def test_a_matrix_that_does_not_say_where_it_is_from(tmp_path: Path, tiny: Path, key: str) -> None:
    matrix = write_imatrix(tmp_path / "i.gguf", tiny)
    matrix.write_bytes(matrix.read_bytes().replace(key.encode(), key.upper().encode()))
    with pytest.raises(ModelFileError, match=rf"i\.gguf: has no {key}, so llama-quantize refuses it too"):
        read_imatrix(matrix)


def test_an_importance_matrix_of_another_model(tmp_path: Path, tiny: Path) -> None:
    other = Model(n_embd=64, n_layer=1).write(tmp_path / "other.gguf")
    mode = make_mode({"mode": "q4_0", "imatrix": write_imatrix(tmp_path / "i.gguf", tiny)})
    with pytest.raises(ModelFileError, match=r"i\.gguf: 32 values for tensor .*: made from another model\?"):
        quantize_model(other, tmp_path / "out.gguf", mode)
    with pytest.raises(ModelFileError, match="not an importance matrix"):
        read_imatrix(other)


@pytest.mark.oracle
@pytest.mark.parametrize("form", ["gguf", "dat"])
def test_what_llama_imatrix_writes(oracle: Oracle, held_out_text: Path, tmp_path: Path, form: str) -> None:
    source, imatrix = model_path(), tmp_path / f"imatrix.{form}"
    oracle.run(
        "llama-imatrix", "-m", source, "-f", held_out_text, "-o", imatrix, "--output-format", form,
        "-c", 128, "-t", 2, "--chunks", 8, "--no-ppl",
    )  # fmt: skip
    assert read_imatrix(imatrix).n_chunks == 8
    for kind in ("Q4_0", "Q5_1"):
        ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
        quantize_model(source, ours, make_mode({"mode": f"ggml:{kind}", "imatrix": imatrix}), force=True)
        oracle.quantize(source, theirs, kind, "--imatrix", imatrix)
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(("routed", "shapes"), [(True, [(8, 64), (8,)]), (False, [(1, 512), (1,)])])
def test_matrices_of_heads_are_in_one_row(routed: bool, shapes: list[tuple[int, ...]]) -> None:
    """llama-imatrix writes one row for DeepSeek 4, whose attn_output_a is 8 matrices with rows of 64."""
    inputs = [SimpleNamespace(matrices=["m"], routed=routed)]
    sums = importance_of(inputs, {"m": (np.ones((8, 64), np.float32), np.full(8, 7.0))})
    assert [x.shape for x in sums["m"]] == shapes


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("value", "says"),
    [(np.inf, "not finite"), (np.nan, "not finite"), (-1.0, "negative"), (1e30, "too large")],
)
def test_values_that_no_run_gives(tmp_path: Path, value: float, says: str, legacy: bool) -> None:
    path = tmp_path / "imatrix"
    values = np.array([1, value, 1], np.float32)
    if legacy:
        path.write_bytes(struct.pack("<ii1sii", 1, 1, b"a", 1, 3) + values.tobytes())
    else:
        sums = {"a": (values[None], np.array([1.0]))}
        imatrix.write_imatrix(path, sums, datasets=[], chunk_size=64, sources=[], force=False)
    with pytest.raises(ModelFileError, match=f"values for tensor 'a' are {says}"):
        read_imatrix(path)


@pytest.mark.parametrize(
    ("count", "says"), [(np.inf, "not finite"), (np.nan, "not finite"), (-1, "negative")]
)
def test_counts_that_no_run_gives(tmp_path: Path, count: float, says: str) -> None:
    header, values = _core.Gguf(), np.array([count, *[0.0] * 7, *[1.0] * 8], np.float32)
    header.set_texts("imatrix.datasets", [])
    header.set_u32("imatrix.chunk_count", 1)
    header.set_u32("imatrix.chunk_size", 64)
    for name in ("a.counts", "a.in_sum2"):
        header.add_tensor(name, Type.F32, [1])
    path = tmp_path / "imatrix"
    path.write_bytes(header.header() + values.tobytes())
    with pytest.raises(ModelFileError, match=f"counts of tokens for tensor 'a' are {says}"):
        read_imatrix(path)
