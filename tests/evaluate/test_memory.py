"""The memory that a comparison takes: what its formula says, and no more with more candidates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant.evaluate.memory import memory_of_comparison
from tests.support.models import Model

VOCABULARY = 200 * 50_000  # bytes that llama.cpp keeps of a model's tokens, about 130 each, and more

# Measured in a process of its own. Peak: of all memory, mapped files included, since the models were loaded
# for the first time; what the process had before that is no matter of the comparison.
MEASURE = """
import json, sys
from pyquant.evaluate.compare import compare_models
from pyquant.machine import forget_peak, peak_memory

base, *candidates = sys.argv[5:]
options = {"n_ctx": int(sys.argv[2]), "n_chunks": int(sys.argv[3]), "threads": 1}
compare_models(sys.argv[4], [], sys.argv[1], n_ctx=8, n_chunks=1, threads=1)
forget_peak()
before = peak_memory()
compare_models(base, candidates, sys.argv[1], **options)
print(json.dumps(peak_memory() - before))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base and eight others, with many tokens in their vocabularies and small otherwise."""
    folder = tmp_path_factory.mktemp("models")
    base = Model(n_embd=32, n_ff=32, n_layer=1, n_vocab=50_000, tied=True, type=Type.F16)
    path = base.write(folder / "base.gguf")
    copies = [folder / f"{i}.gguf" for i in range(8)]
    for copy in copies:
        copy.write_bytes(path.read_bytes())
    return [path, *copies]


def peak(models: list[Path], text: Path, tiny: Path, n_ctx: int, n_chunks: int) -> int:
    """Bytes that comparing the models adds to what a process takes that has already compared."""
    words = [sys.executable, "-c", MEASURE, text, n_ctx, n_chunks, tiny, *models]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_many_candidates_take_no_more_than_their_files(
    models: list[Path], text: Path, small_model: Path
) -> None:
    n_ctx, n_chunks = 256, 9  # a batch and a chunk
    peaks = {n: peak(models[: n + 1], text, small_model, n_ctx, n_chunks) for n in (2, 8)}
    bounds = {n: memory_of_comparison(models[: n + 1], n_ctx=n_ctx).total for n in peaks}
    for n, bound in bounds.items():
        assert 0.5 * bound < peaks[n] < bound + (n + 1) * VOCABULARY
    of_six = 6 * (models[0].stat().st_size + VOCABULARY)
    assert peaks[8] - peaks[2] < of_six
    assert 3 * of_six < 6 * bounds[2]  # one context more for each would be seen


def test_a_long_chunk_is_in_a_file(models: list[Path], text: Path, small_model: Path) -> None:
    n_ctx = 6000
    bound = memory_of_comparison(models[:2], n_ctx=n_ctx)
    logits = 4 * 50_000 * n_ctx // 2
    took = peak(models[:2], text, small_model, n_ctx, 1)
    assert bound.logits < 0.7 * logits
    assert took < bound.total + 2 * VOCABULARY


def test_the_base_needs_no_more_than_one_batch(models: list[Path]) -> None:
    memory = memory_of_comparison(models, n_ctx=512)
    assert memory.logits == 4 * 50_000 * 4 * 256
    assert memory.weights.keys() == set(models)
    assert memory.total - memory.working == sum(path.stat().st_size for path in models)
