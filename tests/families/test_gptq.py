"""GPTQ lowers the KLD in every family, and error propagation lowers it further."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.evaluate.compare import compare_models
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.dampening import PROPAGATED
from pyquant.schemes.settings import make_mode
from tests.support.families import CHUNKS, FAMILIES


@pytest.mark.ci
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_nearer_to_the_model(
    family: Callable[[str], Path],
    stats: Callable[[str], Path],
    texts: tuple[Path, Path],
    name: str,
    tmp_path: Path,
) -> None:
    plain = {"mode": "ggml:IQ4_NL", "pure": True, "tensors": "blk"}
    gptq = {**plain, "hessian": stats(name)}
    as_propagated = {**gptq, "dampening": PROPAGATED}
    files = {
        "plain": plain,
        "gptq": gptq,
        "as in order": as_propagated,
        "in order": {**as_propagated, "error_propagation": CHUNKS},
    }
    for label, mode in files.items():
        result = quantize_model(family(name), tmp_path / f"{label}.gguf", make_mode(mode), threads=1)
        assert not result.without_gptq
    paths = [tmp_path / f"{label}.gguf" for label in files]
    compared = compare_models(family(name), paths, texts[1], n_ctx=128, n_chunks=16, threads=1).to_json()
    kld = dict(zip(files, (candidate["kld"]["mean"] for candidate in compared["candidates"])))
    assert kld["gptq"] < 0.4 * kld["plain"]
    assert kld["in order"] < 0.4 * kld["plain"]
    # Tokens that change over to another expert are most of what is left.
    share = 1 if "expert_count" in FAMILIES[name].sizes else 0.9
    assert kld["in order"] < share * kld["as in order"]
