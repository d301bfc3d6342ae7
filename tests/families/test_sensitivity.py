"""Sensitivities of tensors that are quantized, and of no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.models.model_file import ModelFile
from pyquant.models.type_policy import quantizable


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
