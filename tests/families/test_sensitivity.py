"""Sensitivities of tensors that are quantized, and of no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.files.text import read_text
from pyquant.fit import kept_prefixes
from pyquant.fit.kept_prefixes import KeptPrefixes
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.llama import chunks as chunks_module
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.llama.running_weights import RunningWeights
from pyquant.models.model_file import ModelFile
from pyquant.models.type_policy import quantizable
from tests.support.families import FAMILIES


@pytest.mark.parametrize("name", ["GPT-2", "Mixtral"])
def test_what_is_left_as_it_is_has_no_sensitivity(
    name: str, family: Callable[[str], Path], stats: Callable[[str], Path], texts: tuple[Path, Path]
) -> None:
    model = ModelFile(family(name))
    left = {tensor.name for tensor in model.tensors if len(tensor.shape) > 1} - quantizable(model)
    assert left
    measured = measure_sensitivity(model, stats(name), texts[1], n_ctx=64, n_chunks=1, threads=1)
    assert measured.by_tensor
    assert not measured.by_tensor.keys() & left


@pytest.mark.ci
@pytest.mark.parametrize("name", FAMILIES)
def test_kept_prefixes_give_what_whole_runs_give(
    name: str, family: Callable[[str], Path], texts: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chunks_module, kept_prefixes):
        monkeypatch.setattr(module, "BATCH", 256)
    with Model(family(name), changing=True) as running:
        weights = RunningWeights(running)
        # Two pieces, the second of one chunk.
        chunks = cut(running, read_text(texts[1]), n_ctx=64, n_chunks=5)
        names = quantizable(running.file) & weights.names
        with KeptPrefixes(running, names, chunks, 1) as runs, KeptPrefixes(running, [], chunks, 1) as whole:
            for tensor in runs.in_order(names):
                runs.go_to(tensor)
                with weights.copied(tensor) as copy:
                    copy[:] = copy[::-1].copy()
                    expected = whole.kld_by_chunk()
                    assert (runs.kld_by_chunk() == expected).all(), tensor
                if tensor.startswith("blk."):
                    assert expected.max() > 0
            assert not runs.kld_by_chunk().any()
