"""Check the types of tensors before llama.cpp computes with them: some would end the process."""

from __future__ import annotations

from pyquant.errors import ModelFileError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType as Type

MAPS = ("d2t", "ffn_gate_tid2eid")  # kinds of tensors that hold numbers of tokens and experts


def check_types(model: ModelFile) -> None:
    """Refuse tensors of types that llama.cpp does not compute with.

    It asks for a tensor's type when it is at work, and a type that it has no code for ends the process: in
    products one that holds no weights (`ggml_compute_forward_mul_mat`), in sums and in products by element,
    where vectors such as norms and biases are, one that is not F32 (`binary_op`).

    Raises ModelFileError: the message names the tensor and its type.
    """
    for tensor in model.tensors:
        if kind_of(tensor.name) in MAPS:
            continue
        if not tensor.has_weights:
            why = "which holds no weights"
        elif len(tensor.shape) == 1 and tensor.type is not Type.F32:
            why = "and of vectors it takes F32 alone"
        else:
            continue
        raise ModelFileError(
            f"{model.path}: llama.cpp cannot run it: tensor {tensor.name!r} is {tensor.type.name}, {why}"
        )
