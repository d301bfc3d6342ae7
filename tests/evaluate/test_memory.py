"""The memory that a comparison takes: what its formula says, and no more with more candidates."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from pyquant.errors import ConfigError
from pyquant.evaluate.compare import compare_texts
from pyquant.evaluate.memory import memory_of_comparison, n_abreast
from pyquant.files.text import NamedText, read_text
from pyquant.llama.cache import cache_memory
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.chunks import make_context, together
from pyquant.llama.model import Model as Loaded
from pyquant.models.model_file import ModelFile
from tests.support.models import Model
from tests.support.peak import VOCABULARY, peak

N_VOCAB = 50_000
ALL_TOKENS = N_VOCAB * VOCABULARY  # bytes
SLACK = 8 << 20  # bytes; of the allocator, and of what a graph of many nodes takes


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


def test_all_run_side_by_side_where_the_system_does_not_say_what_memory_is_left(
    models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant.evaluate.memory.available_memory", lambda: None)
    files = [ModelFile(model) for model in models[:4]]
    assert n_abreast(files, [F16_CACHE] * 4, 512, None) == 4


def test_the_base_needs_no_more_than_one_batch(models: list[Path]) -> None:
    memory = memory_of_comparison(models, n_ctx=512)
    assert memory.logits == 4 * N_VOCAB * 4 * 256
    assert memory.weights.keys() == set(models)
    assert memory.total - memory.working == sum(path.stat().st_size for path in models)


@pytest.fixture(scope="module")
def with_large_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose cache is most of its memory: 32 MiB of F16 for 2,048 tokens."""
    model = Model(n_embd=1024, n_ff=64, n_head=32, n_head_kv=32, n_layer=4, tied=True, type=Type.F16)
    return model.write(tmp_path_factory.mktemp("cache") / "model.gguf")


@pytest.mark.parametrize("types", [("f32", "f32"), ("q8_0", "q4_0"), ("f16", "q5_1")])
def test_a_cache_is_counted_by_its_types(
    with_large_cache: Path, types: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cache = CacheTypes(*types)
    log = caplog.at_level(logging.DEBUG, "pyquant.llama")
    with log, Loaded(with_large_cache) as model, make_context(model, 512, threads=1, cache=cache):
        pass
    (said,) = (float(size) for size in re.findall(r"KV buffer size = +([\d.]+) MiB", caplog.text))
    ours = cache_memory(ModelFile(with_large_cache), 512, together(512), cache) / 2**20
    assert ours == pytest.approx(said, abs=0.005001)


def test_a_budget_is_of_what_is_run(with_large_cache: Path, text: Path) -> None:
    texts = [NamedText("text", read_text(text))]
    plain = memory_of_comparison([with_large_cache], n_ctx=256)

    def refused(budget: int, **options: object) -> str:
        with pytest.raises(ConfigError, match="budget-memory") as error:
            compare_texts(with_large_cache, [], texts, n_ctx=256, n_chunks=1, budget=budget, **options)
        return str(error.value)

    assert "256 tokens" in refused(plain.total - 1)
    assert refused(plain.total, caches=[CacheTypes("f32", "f32")])
    abreast = memory_of_comparison([with_large_cache], n_ctx=256, abreast=True)
    assert abreast.logits == 0
    assert refused(abreast.total - 1, every_position=True)


@pytest.mark.slow
@pytest.mark.parametrize("types", [("f32", "f32"), ("q8_0", "q4_0")])
@pytest.mark.parametrize("every_position", [False, True])
def test_the_peak_is_within_the_bound(
    with_large_cache: Path, text: Path, small_model: Path, types: tuple[str, str], every_position: bool
) -> None:
    bound = memory_of_comparison(
        [with_large_cache] * 2, n_ctx=512, caches=[F16_CACHE, CacheTypes(*types)], abreast=every_position
    )
    options = {"caches": [types], "every_position": every_position}
    took = peak([with_large_cache], text, small_model, 512, 4, **options)
    assert 0.5 * bound.total < took < bound.total + SLACK
