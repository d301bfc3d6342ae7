"""Products that calibration lets a CPU compute in BF16: those of the twin, bit for bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from pyquant import _core
from pyquant.models.tensor_type import TensorType as Type
from tests.support import ggml
from tests.support.bf16 import rounded
from tests.twins.kernels import bf16_product

needs_bf16 = pytest.mark.skipif(not _core.HAS_BF16_PRODUCTS, reason="this CPU does not multiply BF16")
multiply = partial(bf16_product.multiply, amx=_core.HAS_AMX_PRODUCTS)
every_type = pytest.mark.parametrize("kind", [Type.F16, Type.BF16], ids=lambda kind: kind.name)


def allowed(operation):
    """The operation, whose factors may be rounded."""

    def make(*given: int) -> int:
        node = operation(*given)
        ggml.allow_bf16(node)
        return node

    return make


def numbers(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def weights(kind: Type, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks as GGML has them, and their values."""
    kept = w.astype(np.float16) if kind == Type.F16 else (rounded(w).view(np.uint32) >> 16).astype(np.uint16)
    blocks = np.ascontiguousarray(kept).view(np.uint8).reshape(*w.shape[:-1], w.shape[-1] // 32, -1)
    return blocks, rounded(w if kind == Type.BF16 else kept.astype(np.float32))


@needs_bf16
@every_type
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("n_tokens", "n_rows", "n_in"),
    [(16, 70, 32), (32, 1, 32), (33, 70, 96), (64, 64, 1024), (100, 600, 2080)],
)
def test_the_kernel_equals_its_twin(
    kind: Type, n_threads: int, n_tokens: int, n_rows: int, n_in: int
) -> None:
    x = numbers(n_tokens, n_in, seed=1)
    blocks, w = weights(kind, numbers(n_rows, n_in, seed=2))
    got = ggml.run(allowed(ggml.mul_mat), blocks, None, x, kind=kind, n_threads=n_threads)
    assert np.array_equal(got.reshape(n_tokens, n_rows), multiply(rounded(x), w))


@needs_bf16
@every_type
@pytest.mark.parametrize("shared", [True, False], ids=["one input", "an input each"])
def test_experts_equal_the_twin(kind: Type, shared: bool) -> None:
    n_tokens, n_experts, n_used, n_rows, n_in = 90, 5, 2, 130, 64
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(n_experts - 1)[:n_used] for _ in range(n_tokens)]).astype(np.int32)
    x = numbers(n_tokens, 1 if shared else n_used, n_in, seed=1)
    blocks, w = weights(kind, numbers(n_experts, n_rows, n_in, seed=2))
    got = ggml.run(allowed(ggml.mul_mat_id), blocks, None, x, ids, kind=kind, n_threads=2)
    of_all = np.stack([multiply(rounded(x.reshape(-1, n_in)), each) for each in w])
    of_all = of_all.reshape(n_experts, n_tokens, -1, n_rows)
    for token in range(n_tokens):
        for slot in range(n_used):
            expected = of_all[ids[token, slot], token, slot % x.shape[1]]
            assert np.array_equal(got.reshape(n_tokens, n_used, n_rows)[token, slot], expected)


@every_type
@pytest.mark.parametrize(
    ("operation", "n_tokens"),
    [pytest.param(ggml.mul_mat, 64, id="not allowed"), pytest.param(allowed(ggml.mul_mat), 15, id="few")],
)
def test_others_are_as_llama_cpp_computes_them(operation, kind: Type, n_tokens: int) -> None:
    x = numbers(n_tokens, 64, seed=1)
    blocks, w = weights(kind, numbers(70, 64, seed=2))
    got = ggml.run(operation, blocks, None, x, kind=kind).reshape(n_tokens, 70)
    if kind == Type.F16:
        exact = x @ blocks.view(np.float16).reshape(70, 64).astype(np.float32).T
        assert np.abs(got - exact).max() < 0.02 < np.abs(multiply(rounded(x), w) - exact).max()
    assert np.array_equal(got, ggml.run(ggml.mul_mat, blocks, None, x, kind=kind).reshape(n_tokens, 70))


@every_type
def test_experts_that_few_tokens_come_to_are_as_llama_cpp_computes_them(kind: Type) -> None:
    n_tokens, n_experts = 40, 8
    ids = np.arange(3 * n_tokens, dtype=np.int32).reshape(n_tokens, 3) % n_experts  # 15 for each
    x = numbers(n_tokens, 1, 64, seed=1)
    blocks, _ = weights(kind, numbers(n_experts, 70, 64, seed=2))
    got = ggml.run(allowed(ggml.mul_mat_id), blocks, None, x, ids, kind=kind)
    assert np.array_equal(got, ggml.run(ggml.mul_mat_id, blocks, None, x, ids, kind=kind))
