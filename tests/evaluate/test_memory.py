"""The memory that a comparison takes: what its formula says, and no more with more candidates."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant.evaluate.memory import memory_of_comparison
from tests.support.models import Model
from tests.support.peak import VOCABULARY, peak

N_VOCAB = 50_000
ALL_TOKENS = N_VOCAB * VOCABULARY  # bytes


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base and eight others, with many tokens in their vocabularies and small otherwise."""
    folder = tmp_path_factory.mktemp("models")
    base = Model(n_embd=32, n_ff=32, n_layer=1, n_vocab=N_VOCAB, tied=True, type=Type.F16)
    path = base.write(folder / "base.gguf")
    copies = [folder / f"{i}.gguf" for i in range(8)]
    for copy in copies:
        copy.write_bytes(path.read_bytes())
    return [path, *copies]


@pytest.mark.slow
def test_many_candidates_take_no_more_than_their_files(
    models: list[Path], text: Path, small_model: Path
) -> None:
    n_ctx, n_chunks = 256, 9  # a batch and a chunk
    peaks = {n: peak(models[: n + 1], text, small_model, n_ctx, n_chunks) for n in (2, 8)}
    bounds = {n: memory_of_comparison(models[: n + 1], n_ctx=n_ctx).total for n in peaks}
    for n, bound in bounds.items():
        assert 0.5 * bound < peaks[n] < bound + (n + 1) * ALL_TOKENS
    of_six = 6 * (models[0].stat().st_size + ALL_TOKENS)
    assert peaks[8] - peaks[2] < of_six
    assert 3 * of_six < 6 * bounds[2]  # one context more for each would be seen


@pytest.mark.slow
def test_logits_of_a_long_chunk_are_not_kept(models: list[Path], text: Path, small_model: Path) -> None:
    n_ctx = 8192
    bound = memory_of_comparison(models[:2], n_ctx=n_ctx)
    logits = 4 * N_VOCAB * n_ctx // 2
    took = peak(models[:2], text, small_model, n_ctx, 1)
    assert bound.logits == 0
    assert bound.working < 0.8 * logits
    assert took < bound.total + 2 * ALL_TOKENS


def test_the_base_needs_no_more_than_one_batch(models: list[Path]) -> None:
    memory = memory_of_comparison(models, n_ctx=512)
    assert memory.logits == 4 * N_VOCAB * 4 * 256
    assert memory.weights.keys() == set(models)
    assert memory.total - memory.working == sum(path.stat().st_size for path in models)
