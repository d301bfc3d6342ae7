"""Single operations of the patched GGML, on arrays: what llama.cpp calls, without a model around it."""

from __future__ import annotations

import ctypes
import itertools
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int8, c_int64, c_size_t, c_void_p

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.models.tensor_type import TensorType as Type

LIBRARY = ctypes.CDLL(_core.__file__)
TYPES = {np.dtype(np.float16): Type.F16, np.dtype(np.float32): Type.F32, np.dtype(np.int32): Type.I32}


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


def _declare(name: str, result, *arguments):
    function = getattr(LIBRARY, name)
    function.restype, function.argtypes = result, arguments
    return function


init = _declare("ggml_init", c_void_p, InitParams)
free = _declare("ggml_free", None, c_void_p)
new_tensor = _declare("ggml_new_tensor", c_void_p, c_void_p, c_int, c_int, POINTER(c_int64))
get_data = _declare("ggml_get_data", c_void_p, c_void_p)
n_elements = _declare("ggml_nelements", c_int64, c_void_p)
tensor_set = _declare("ggml_backend_tensor_set", None, c_void_p, c_void_p, c_size_t, c_size_t)
set_table = _declare("pyquant_set_table", None, c_void_p, POINTER(c_int8))
allow_bf16 = _declare("pyquant_allow_bf16", None, c_void_p)
mul_mat = _declare("ggml_mul_mat", c_void_p, c_void_p, c_void_p, c_void_p)
mul_mat_id = _declare("ggml_mul_mat_id", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
flash_attention = _declare(
    "ggml_flash_attn_ext", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, *3 * [c_float]
)
get_rows = _declare("ggml_get_rows", c_void_p, c_void_p, c_void_p, c_void_p)
new_graph = _declare("ggml_new_graph", c_void_p, c_void_p)
expand = _declare("ggml_build_forward_expand", None, c_void_p, c_void_p)
allocate = _declare("ggml_backend_alloc_ctx_tensors_from_buft", c_void_p, c_void_p, c_void_p)
buffer_free = _declare("ggml_backend_buffer_free", None, c_void_p)
buffer_name = _declare("ggml_backend_buft_name", c_char_p, c_void_p)
proc_address = _declare("ggml_backend_reg_get_proc_address", c_void_p, c_void_p, c_char_p)
registry = _declare("ggml_backend_cpu_reg", c_void_p)
compute = _declare("ggml_graph_compute_with_ctx", c_int, c_void_p, c_void_p, c_int)


def buffer_type(name: bytes) -> int:
    """One of the CPU's buffer types that change a tensor's layout."""
    listing = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(
        proc_address(registry(), b"ggml_backend_dev_get_extra_bufts")
    )(None)
    found = itertools.takewhile(bool, (listing[i] for i in itertools.count()))
    return next(kind for kind in found if buffer_name(kind) == name)


def _new(context: int, kind: Type, shape: tuple[int, ...]) -> int:
    return new_tensor(context, int(kind), len(shape), (c_int64 * len(shape))(*shape))


def run(
    operation,
    blocks: NDArray[np.uint8],
    table: NDArray[np.int8] | None,
    *others: NDArray[np.float32] | NDArray[np.int32],
    kind: Type = Type.Q4_T,
    buffer: bytes | None = None,
    n_threads: int = 1,
) -> NDArray[np.float32]:
    """Flat results of an operation on weights and other arguments, in numpy's order of dimensions.

    blocks: (..., n_rows, blocks_per_row, bytes). buffer: to put the weights into.
    """
    weights = init(InitParams(blocks.nbytes * (buffer is None) + 4096, None, buffer is not None))
    work = init(InitParams((64 << 20), None, False))
    allocated = None
    try:
        shape = (blocks.shape[-2] * 32, *reversed(blocks.shape[:-2]))
        tensor = _new(weights, kind, shape)
        if table is not None:
            set_table(tensor, table.ctypes.data_as(POINTER(c_int8)))
        if buffer is not None:
            allocated = allocate(weights, buffer_type(buffer))
            tensor_set(tensor, blocks.ctypes.data, 0, blocks.nbytes)
        else:
            ctypes.memmove(get_data(tensor), blocks.ctypes.data, blocks.nbytes)
        arguments = []
        for array in others:
            arguments.append(_new(work, TYPES[array.dtype], array.shape[::-1]))
            ctypes.memmove(get_data(arguments[-1]), np.ascontiguousarray(array).ctypes.data, array.nbytes)
        result = operation(work, tensor, *arguments)
        graph = new_graph(work)
        expand(graph, result)
        assert compute(work, graph, n_threads) == 0
        values = (ctypes.c_float * n_elements(result)).from_address(get_data(result))
        return np.array(values, np.float32)
    finally:
        if allocated:
            buffer_free(allocated)
        free(work)
        free(weights)


def attend(
    q: NDArray[np.float32],
    k: NDArray[np.float16],
    v: NDArray[np.float16],
    mask: NDArray[np.float16],
    scale: float,
    n_threads: int = 1,
) -> NDArray[np.float32]:
    """Attention as llama.cpp asks for it: (n_sequences, n_tokens, n_heads, size).

    q: (n_sequences, n_heads, n_tokens, size). k, v: (n_sequences, n_heads of them, n_cells, size).
    mask: (1, 1, n_tokens, n_cells).
    """
    work = init(InitParams(64 << 20, None, False))
    try:
        arguments = []
        for array in (q, k, v, mask):
            arguments.append(_new(work, TYPES[array.dtype], array.shape[::-1]))
            kept = np.ascontiguousarray(array)
            ctypes.memmove(get_data(arguments[-1]), kept.ctypes.data, kept.nbytes)
        result = flash_attention(work, *arguments, scale, 0, 0)
        graph = new_graph(work)
        expand(graph, result)
        assert compute(work, graph, n_threads) == 0
        values = (ctypes.c_float * n_elements(result)).from_address(get_data(result))
        return np.array(values, np.float32).reshape(q.shape[0], q.shape[2], q.shape[1], q.shape[3])
    finally:
        free(work)
