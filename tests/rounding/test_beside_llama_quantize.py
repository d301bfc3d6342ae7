"""Files that are no plain language models: pyquant copies, makes and refuses what llama-quantize does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.models.file_type import FILE_TYPES
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.inside_llama import quantize_patched
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.ggml_type import ALIASES, CHOICES, COPY, FP4
from pyquant.schemes.settings import make_mode
from tests.support.gguf_file import finish
from tests.support.models import EXPERTS, Model
from tests.support.oracle import Oracle
from tests.support.vendored import patched_llama

Write = Callable[[Path], Path]


def vocabulary(path: Path) -> Path:
    """A file of a vocabulary alone, from llama.cpp's tree."""
    return Path(shutil.copy(patched_llama() / "models" / "ggml-vocab-llama-spm.gguf", path))


def no_tensors(path: Path) -> Path:
    writer = GGUFWriter(path, "llama")
    Model(n_layer=1).add_tokenizer(writer)
    for key, value in (("block_count", 1), ("embedding_length", 64), ("context_length", 64)):
        writer.add_uint32(f"llama.{key}", value)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def numbers(path: Path) -> Path:
    """A model with tensors of every type that is no weight: llama.cpp issue 24096's kind has I32."""
    writer, rng = GGUFWriter(path, "llama"), np.random.default_rng(1)
    Model(n_layer=1, n_embd=256, n_ff=256, type=GGMLQuantizationType.F16).add_to(writer)
    writer.add_tensor("blk.0.ffn_gate_tid2eid.weight", rng.integers(0, 8, (320, 6), np.int32))
    writer.add_tensor("blk.0.scale", rng.normal(size=64))
    for dtype in (np.int8, np.int16, np.int32, np.int64):
        writer.add_tensor(f"blk.0.{np.dtype(dtype).name}", rng.integers(0, 9, 32).astype(dtype))
    finish(writer)
    return path


def mmproj(path: Path) -> Path:
    """A projector of images, architecture clip (llama.cpp issues 16592, 26818)."""
    writer, rng = GGUFWriter(path, "clip"), np.random.default_rng(2)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_uint32("clip.vision.block_count", 2)
    writer.add_uint32("clip.vision.embedding_length", 256)
    shapes = {
        "v.patch_embd.weight": (256, 3, 14, 14),
        "v.position_embd.weight": (64, 256),
        "mm.0.weight": (512, 256),
    }
    for layer in range(2):
        for kind, shape in (
            ("attn_q", (256, 256)),
            ("attn_v", (256, 256)),
            ("ffn_down", (256, 512)),
            ("ffn_up", (512, 256)),
        ):
            shapes[f"v.blk.{layer}.{kind}.weight"] = shape
        shapes[f"v.blk.{layer}.ln1.bias"] = (256,)
    for name, shape in shapes.items():
        x = rng.normal(size=shape) / 16
        writer.add_tensor(name, x.astype(np.float32 if len(shape) == 1 else np.float16))
    finish(writer)
    return path


FILES: dict[str, Write] = {
    "vocabulary": vocabulary,
    "no tensors": no_tensors,
    "numbers": numbers,
    "mmproj": mmproj,
}


@pytest.fixture(params=FILES)
def unusual(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return FILES[request.param](tmp_path / "unusual.gguf")


@pytest.mark.oracle
@pytest.mark.parametrize("type_", ["Q8_0", "Q4_0", "Q4_K_M", "Q6_K", COPY])
def test_the_bytes_of_llama_quantize(oracle: Oracle, unusual: Path, tmp_path: Path, type_: str) -> None:
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(unusual, ours, make_mode({"mode": f"ggml:{type_}"}))
    oracle.quantize(unusual, theirs, type_)
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("mode", ["q4_0", "q8_0", "ggml:Q8_0", "ggml:COPY"])
def test_files_without_weights_are_copied(tmp_path: Path, mode: str) -> None:
    for write in (vocabulary, no_tensors):
        source = write(tmp_path / "source.gguf")
        result = quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": mode}), force=True)
        assert (result.bits_per_weight, result.tensors) == (None, [])
        assert ModelFile(tmp_path / "out.gguf").tensors == []


def test_numbers_are_copied(tmp_path: Path) -> None:
    source = ModelFile(numbers(tmp_path / "numbers.gguf"))
    quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "q4_0"}))
    copied = {tensor.name: tensor for tensor in ModelFile(tmp_path / "out.gguf").tensors}
    for tensor in source.tensors:
        if not tensor.has_weights:
            assert (copied[tensor.name].type, copied[tensor.name].data()) == (tensor.type, tensor.data())


@pytest.mark.parametrize(
    "type_", [type_ for type_ in Type if type_ is not Type.Q4_T], ids=lambda type_: type_.name
)
def test_a_tensor_of_every_type_beside_the_weights(tmp_path: Path, type_: Type) -> None:
    """It is copied: it has one dimension."""
    path = Model(n_layer=1).write(tmp_path / "model.gguf")
    model, header = ModelFile(path), _core.Gguf()
    header.copy_keys(model.header)
    for tensor in model.tensors:
        header.add_tensor(tensor.name, int(tensor.type), tensor.shape)
    header.add_tensor("blk.0.beside", int(type_), [256])
    data = b"".join(tensor.data().ljust(-(-tensor.n_bytes // 32) * 32, b"\0") for tensor in model.tensors)
    beside = bytes(_core.row_bytes(int(type_), 256))
    path.write_bytes(header.header() + data + beside.ljust(-(-len(beside) // 32) * 32, b"\0"))
    quantize_model(path, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q8_0"}))
    (copied,) = (t for t in ModelFile(tmp_path / "out.gguf").tensors if t.name == "blk.0.beside")
    assert (copied.type, copied.data()) == (type_, beside)


@pytest.mark.parametrize(("dtype", "name"), [(np.float64, "F64"), (np.int32, "I32")])
def test_numbers_to_be_quantized_are_refused(tmp_path: Path, dtype: type, name: str) -> None:
    """llama-quantize says "cannot dequantize/convert tensor type i32"."""
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    Model(n_layer=1).add_to(writer)
    writer.add_tensor("blk.0.more.weight", np.zeros((32, 64), dtype))
    finish(writer)
    with pytest.raises(
        ModelFileError, match=rf"'blk.0.more.weight' is {name}, of which GGML makes no other type"
    ):
        quantize_model(tmp_path / "m.gguf", tmp_path / "out.gguf", make_mode({"mode": "ggml:Q8_0"}))


def test_f64_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    Model(n_layer=1).add_to(writer)
    writer.add_tensor("blk.0.scale", np.array([1, np.nan, *[0.0] * 30]))
    finish(writer)
    with pytest.raises(ModelFileError, match=r"'blk.0.scale', weight \[1\]: nan"):
        quantize_model(tmp_path / "m.gguf", tmp_path / "out.gguf", make_mode({"mode": "ggml:Q8_0"}))


def test_names_of_types_are_those_of_llama_quantize() -> None:
    source = (patched_llama() / "tools" / "quantize" / "quantize.cpp").read_text()
    table = source.partition("QUANT_OPTIONS = {")[2].partition("\n};")[0]
    names = {line.split('"')[1] for line in table.splitlines() if line.strip().startswith("{")}
    assert names == {*ALIASES, *CHOICES, COPY}


def tensor_types(path: Path) -> dict[str, Type]:
    return {tensor.name: tensor.type for tensor in ModelFile(path).tensors}


@pytest.mark.oracle
@pytest.mark.parametrize("name", FP4)
@pytest.mark.parametrize("n_expert", [0, 3])
def test_fp4_is_of_all_matrices_of_layers(oracle: Oracle, tmp_path: Path, name: str, n_expert: int) -> None:
    source = Model(n_ff=128, n_layer=2, n_expert=n_expert).write(tmp_path / "m.gguf")
    theirs, ours = tmp_path / "theirs.gguf", tmp_path / "ours.gguf"
    oracle.quantize(source, theirs, "MXFP4_MOE", "--tensor-type", rf"blk\.={name.lower()}")
    quantize_model(source, ours, make_mode({"mode": f"ggml:{name.lower()}"}))
    quantize_patched(source, tmp_path / "patched.gguf", make_mode({"mode": f"ggml:{name}"}), threads=1)
    assert tensor_types(tmp_path / "patched.gguf") == tensor_types(ours)
    if name == "MXFP4":
        assert ours.read_bytes() == theirs.read_bytes()
    assert ModelFile(ours).get("general.file_type") == FILE_TYPES[f"{name}_MOE" if name == "MXFP4" else name]
    for mine, its in zip(GGUFReader(ours).tensors, GGUFReader(theirs).tensors, strict=True):
        assert (mine.name, mine.tensor_type) == (its.name, its.tensor_type)
        np.testing.assert_array_equal(mine.data, its.data)


def test_rows_that_fp4_does_not_divide_are_as_in_mxfp4_moe(tmp_path: Path) -> None:
    source = Model(n_ff=96, n_layer=1).write(tmp_path / "m.gguf")
    quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "ggml:NVFP4"}))
    types = tensor_types(tmp_path / "out.gguf")
    assert types["blk.0.ffn_up.weight"] is Type.NVFP4
    assert types["blk.0.ffn_down.weight"] is types["output.weight"] is Type.Q8_0


def test_what_upstream_says_need_not_be_utf_8(tmp_path: Path) -> None:
    path = Model(n_layer=1).write(tmp_path / "m.gguf")
    data = (
        path.read_bytes()
        .replace(b"llama.block_count", b"llama.block_coun\xff")
        .replace(b"general.name", b"general.\xc0ame")
    )
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="UTF-8"):
        ModelFile(path)
    with pytest.raises(RuntimeError, match=r"no\\xc0"):
        _core.TypePolicy(os.fsencode(tmp_path) + b"/no\xc0.gguf")


def imatrix_of(path: Path, model: Path, lacks: Callable[[str], bool]) -> Path:
    """An importance matrix of all matrices but some."""
    writer = GGUFWriter(path, "llama")
    writer.add_array("imatrix.datasets", ["a.txt"])
    writer.add_uint32("imatrix.chunk_count", 7)
    writer.add_uint32("imatrix.chunk_size", 64)
    for tensor in ModelFile(model).tensors:
        if len(tensor.shape) > 1 and not lacks(tensor.name):
            writer.add_tensor(
                f"{tensor.name}.in_sum2", np.ones((tensor.n_experts, tensor.n_per_row), np.float32)
            )
            writer.add_tensor(f"{tensor.name}.counts", np.ones((tensor.n_experts, 1), np.float32))
    finish(writer)
    return path


LOW = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "Q2_K_S")


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("type_", LOW)
def test_an_importance_matrix_that_lacks_a_tensor(tmp_path: Path, type_: str, pure: bool) -> None:
    """llama.cpp issues 23476, 23575 and 6249: one of layer 0 alone; GGML would abort."""
    source = Model(n_embd=256, n_ff=256).write(tmp_path / "m.gguf")
    lacks = imatrix_of(tmp_path / "i.gguf", source, lambda name: not name.startswith("blk.0."))
    mode = make_mode({"mode": f"ggml:{type_}", "imatrix": lacks, "pure": pure})
    with pytest.raises(
        ConfigError, match=r"imatrix: .* makes '.*' .*, which needs its importance, and .*lacks it"
    ):
        quantize_model(source, tmp_path / "out.gguf", mode)
    assert not (tmp_path / "out.gguf").exists()


def slow_to_make(type_: str) -> list[pytest.MarkDecorator]:
    """IQ1_S and IQ1_M take GGML most of a minute."""
    return [pytest.mark.slow] if type_.startswith("IQ1") else []


@pytest.mark.oracle
@pytest.mark.parametrize(
    "type_", [*(pytest.param(type_, marks=slow_to_make(type_)) for type_ in LOW), "Q2_K", "IQ3_M", "Q4_K_M"]
)
def test_refusals_of_an_importance_matrix_are_llama_quantizes(
    oracle: Oracle, tmp_path: Path, type_: str, generated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_NO_BACKTRACE", "1")  # a debugger would be started
    dense = Model(n_embd=256, n_ff=256, n_layer=1).write(tmp_path / "m.gguf")
    for source, names in (
        (dense, ("attn_v", "token_embd", "output.weight", "nothing")),
        (generated(EXPERTS), ("ffn_down",)),
    ):
        for missing in names:
            lacks = imatrix_of(tmp_path / "i.gguf", source, lambda name, missing=missing: missing in name)
            ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
            try:
                quantize_model(
                    source, ours, make_mode({"mode": f"ggml:{type_}", "imatrix": lacks}), force=True
                )
            except ConfigError:
                with pytest.raises(AssertionError, match="exit status"):  # or an assertion of GGML's ends it
                    oracle.quantize(source, theirs, type_, "--imatrix", lacks)
                continue
            oracle.quantize(source, theirs, type_, "--imatrix", lacks)
            assert ours.read_bytes() == theirs.read_bytes(), missing


def test_embeddings_that_ggml_cannot_make_without_importance(tmp_path: Path) -> None:
    source = Model(n_embd=256, n_ff=256).write(tmp_path / "m.gguf")
    recipe = tmp_path / "r.toml"
    recipe.write_text('version = 1\nbase = "Q4_K_M"\n[tensors]\n"token_embd.weight" = "IQ2_XXS"\n')
    with pytest.raises(
        ConfigError, match=r"makes 'token_embd\.weight' IQ2_XXS, which needs an importance matrix"
    ):
        quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "recipe", "recipe": recipe}))


def test_an_assertion_of_ggml_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"ggml\.c:\d+: GGML_ASSERT\(imatrix != NULL\)"):
        _core.ggml_encoder(int(Type.IQ2_XXS)).encode(np.ones((1, 256), np.float32))


def test_one_text_as_datasets_is_read(tmp_path: Path) -> None:
    """llama-quantize reads such a matrix, and takes it for one without datasets."""
    source = Model(n_layer=1).write(tmp_path / "m.gguf")
    path = imatrix_of(tmp_path / "i.gguf", source, lambda name: False)
    header, model = _core.Gguf(), ModelFile(path)
    header.set_text("imatrix.datasets", "a.txt")
    header.set_u32("imatrix.chunk_count", 7)
    header.set_u32("imatrix.chunk_size", 64)
    for tensor in model.tensors:
        header.add_tensor(tensor.name, int(tensor.type), tensor.shape)
    data = b"".join(tensor.data().ljust(-(-tensor.n_bytes // 32) * 32, b"\0") for tensor in model.tensors)
    path.write_bytes(header.header() + data)
    quantize_model(source, tmp_path / "out.gguf", make_mode({"mode": "ggml:Q4_0", "imatrix": path}))
    out = ModelFile(tmp_path / "out.gguf")
    assert "quantize.imatrix.dataset" not in out.keys
    assert out.get("quantize.imatrix.chunks_count") == 7
