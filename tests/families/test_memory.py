"""The memory of families whose caches differ, in windows and states: what llama.cpp takes, and a process."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyquant.evaluate.memory import memory_of_comparison
from pyquant.llama.cache import cache_memory
from pyquant.llama.chunks import make_context, together
from pyquant.llama.context_memory import context_memory
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from tests.support.families import FAMILIES
from tests.support.family import SIZES, Family
from tests.support.peak import peak

SLACK = 8 << 20  # bytes; of the allocator, and of what a graph of many nodes takes


def large(family: Family) -> Family:
    """The same family, large enough for its activations and caches to be seen."""
    sizes = {**SIZES, **family.sizes}
    larger = {"embedding_length": 512, "context_length": 16384}
    if "ssm.inner_size" in sizes:
        larger |= {"ssm.inner_size": 1024, "ssm.state_size": 64}
    else:
        ff = "expert_feed_forward_length" if "expert_feed_forward_length" in sizes else "feed_forward_length"
        larger |= {"attention.key_length": 512 // sizes["attention.head_count"], ff: 1024}
    return replace(family, sizes={**family.sizes, **larger})


@pytest.mark.parametrize("n_ctx", [32, 256, 4096])
@pytest.mark.parametrize("name", FAMILIES)
def test_caches_are_those_that_llama_cpp_makes(
    name: str, n_ctx: int, family: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    file = ModelFile(family(name))
    if n_ctx > 256 and any(tensor.name == "position_embd.weight" for tensor in file.tensors):
        pytest.skip("its positions are learned, and fewer")
    log = caplog.at_level(logging.DEBUG, "pyquant.llama")
    with log, Model(file) as model, make_context(model, n_ctx, threads=1):
        pass
    said = re.findall(r"(\w+) buffer size = +([\d.]+) MiB", caplog.text)
    caches = [float(size) for what, size in said if what in ("KV", "RS")]
    ours = cache_memory(file, n_ctx, together(n_ctx))
    assert ours / 2**20 == pytest.approx(sum(caches), abs=0.005001 * len(caches))  # two decimals of each
    rest = sum(float(size) for what, size in said if what in ("compute", "output"))
    assert rest < (context_memory(file, n_ctx) - ours) / 2**20 < 4 * rest


@pytest.mark.parametrize(
    ("name", "n_ctx", "n_chunks"),
    [
        pytest.param(
            name,
            n_ctx,
            n_chunks,
            marks=pytest.mark.ci if (name, n_ctx) == ("Mamba", 32) else pytest.mark.slow,
        )
        for name in FAMILIES
        for n_ctx, n_chunks in [(32, 70), (4096, 1)]
    ],
)  # fmt: skip
def test_the_estimate_is_right(
    name: str, n_ctx: int, n_chunks: int, texts: tuple[Path, Path], small_model: Path, tmp_path: Path
) -> None:
    model, copy, text = tmp_path / "model.gguf", tmp_path / "copy.gguf", tmp_path / "text.txt"
    large(FAMILIES[name]).write(model)
    copy.write_bytes(model.read_bytes())
    text.write_text(3 * texts[1].read_text())
    memory = memory_of_comparison([model, copy], n_ctx=n_ctx)
    took = peak([model, copy], text, small_model, n_ctx, n_chunks)
    working = took - sum(memory.weights.values())
    assert 0.4 * memory.context < working < memory.context + SLACK
