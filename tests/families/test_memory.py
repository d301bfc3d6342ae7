"""The memory that a comparison takes of models whose caches differ: windows, recurrent states, long rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pyquant.evaluate.memory import memory_of_comparison
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


@pytest.mark.parametrize(
    ("name", "n_ctx", "n_chunks"),
    [
        pytest.param(
            name, n_ctx, n_chunks,
            marks=[] if (name, n_ctx) in [("Mamba", 32), ("Gemma 3", 8192)] else pytest.mark.slow,
        )
        for name in FAMILIES
        for n_ctx, n_chunks in [(32, 70), (8192, 1)]
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
