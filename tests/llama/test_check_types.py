"""Types of tensors with which llama.cpp would end the process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGUFWriter
from gguf import GGMLQuantizationType as Type

from pyquant.errors import ModelFileError
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.llama.model import Model as LlamaModel
from tests.support.models import Model

MATRIX, NORM = "blk.0.ffn_down.weight", "blk.0.attn_norm.weight"
NO_WEIGHTS = [Type.I8, Type.I16, Type.I32, Type.I64, Type.F64, Type.Q8_K]


@dataclass(frozen=True)
class Typed(Model):
    """A model with a tensor of another type, all of whose bytes are 0."""

    typed: str = MATRIX
    as_type: Type = Type.F32

    def add_to(self, writer: GGUFWriter) -> None:
        super().add_to(writer)
        (tensors,) = writer.tensors
        tensor = tensors[self.typed]
        n_weights, n_bytes = GGML_QUANT_SIZES[self.as_type]
        *outer, n_per_row = tensor.shape
        tensor.dtype = self.as_type
        tensor.tensor = np.zeros((*outer, n_per_row // n_weights * n_bytes), np.uint8)
        tensor.nbytes = tensor.tensor.nbytes


def typed(folder: Path, name: str, type_: Type) -> Path:
    model = Typed(n_embd=256, n_ff=256, n_layer=1, typed=name, as_type=type_)
    return model.write(folder / "m.gguf")


@pytest.mark.parametrize("type_", NO_WEIGHTS, ids=lambda type_: type_.name)
@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight", MATRIX])
def test_matrices_that_hold_no_weights(tmp_path: Path, name: str, type_: Type) -> None:
    path = typed(tmp_path, name, type_)
    with pytest.raises(ModelFileError) as raised:
        LlamaModel(path)
    said = f"{path}: llama.cpp cannot run it: tensor '{name}' is {type_.name}, which holds no weights"
    assert str(raised.value) == said


@pytest.mark.parametrize("type_", [Type.F16, Type.BF16, Type.Q8_0, Type.Q2_K], ids=lambda type_: type_.name)
def test_vectors_in_fewer_bits(tmp_path: Path, type_: Type) -> None:
    with pytest.raises(ModelFileError, match=rf"'{NORM}' is {type_.name}, and of vectors it takes F32"):
        LlamaModel(typed(tmp_path, NORM, type_))


@pytest.mark.parametrize("type_", [Type.F32, Type.F16, Type.IQ1_S, Type.TQ1_0, Type.MXFP4, Type.NVFP4])
def test_types_that_llama_cpp_computes_with(tmp_path: Path, type_: Type) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the animal in the house " * 60)
    measure_perplexity(typed(tmp_path, MATRIX, type_), text, n_ctx=64, n_chunks=1, threads=1)
