"""Every family beside stock llama.cpp's tools: the same files, importance matrices and perplexity."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration.imatrix import read_imatrix
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.families import CHUNKS, CTX, FAMILIES
from tests.support.oracle import Oracle

pytestmark = pytest.mark.oracle
every_family = pytest.mark.parametrize("name", FAMILIES)

# Types that always run: those whose mixtures and fallbacks differ most, with an imatrix or without.
OFTEN = {("Q4_0", False), ("Q4_K_M", True), ("IQ4_NL", True), ("Q3_K_M", False)}
TYPES = ["Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K_M"]


@every_family
@pytest.mark.parametrize(
    ("type_", "weighted"),
    [
        pytest.param(type_, weighted, marks=[] if (type_, weighted) in OFTEN else pytest.mark.slow)
        for type_ in TYPES
        for weighted in (False, True)
    ],
)
def test_llama_quantize_writes_the_same_file(
    oracle: Oracle, family: Callable[[str], Path], stats: Callable[[str], Path], name: str, type_: str,
    weighted: bool, tmp_path: Path,
) -> None:  # fmt: skip
    ours, theirs, imatrix = tmp_path / "ours.gguf", tmp_path / "theirs.gguf", None
    if weighted:
        imatrix = stats(name).with_name("imatrix.gguf")
    quantize_model(family(name), ours, make_mode({"mode": f"ggml:{type_}", "imatrix": imatrix}), threads=1)
    oracle.quantize(family(name), theirs, type_, *(["--imatrix", imatrix] if imatrix else []))
    assert ours.read_bytes() == theirs.read_bytes()
    assert {t.type for t in ModelFile(ours).tensors} != {t.type for t in ModelFile(family(name)).tensors}


@every_family
def test_llama_imatrix_writes_the_same_file(
    oracle: Oracle, family: Callable[[str], Path], stats: Callable[[str], Path], texts: tuple[Path, Path],
    name: str, tmp_path: Path,
) -> None:  # fmt: skip
    ours, theirs = stats(name).with_name("imatrix.gguf"), tmp_path / "theirs.gguf"
    oracle.run(
        "llama-imatrix", "-m", family(name), "-f", texts[0], "-o", theirs, "-c", CTX, "--chunks", CHUNKS,
        "-t", 1, "--no-ppl", "-ub", 2048, "--process-output",
    )  # fmt: skip
    assert ours.read_bytes() == theirs.read_bytes()
    counts = read_imatrix(ours).counts
    for tensor in ModelFile(family(name)).tensors:
        if "_exps" in tensor.name:
            assert len(counts[tensor.name]) == tensor.n_experts
            assert np.ptp(counts[tensor.name]) > 0
            assert counts[tensor.name].sum() == 2 * CTX * CHUNKS  # each token enters two


@every_family
def test_llama_perplexity_says_the_same(
    oracle: Oracle, family: Callable[[str], Path], texts: tuple[Path, Path], name: str
) -> None:
    assert_same_perplexity(oracle, family(name), texts[1], n_ctx=128, n_chunks=9)


@pytest.mark.ci
def test_a_large_vocabulary(oracle: Oracle, texts: tuple[Path, Path], tmp_path: Path) -> None:
    model = replace(FAMILIES["Gemma 3"], n_vocab=262_144).write(tmp_path / "model.gguf")
    ours, theirs = tmp_path / "ours.gguf", tmp_path / "theirs.gguf"
    quantize_model(model, ours, make_mode({"mode": "ggml:Q4_K_M"}), threads=1)
    oracle.quantize(model, theirs, "Q4_K_M")
    assert ours.read_bytes() == theirs.read_bytes()
    assert_same_perplexity(oracle, ours, texts[1], n_ctx=64, n_chunks=1)


def assert_same_perplexity(oracle: Oracle, model: Path, text: Path, n_ctx: int, n_chunks: int) -> None:
    result = measure_perplexity(model, text, n_ctx=n_ctx, n_chunks=n_chunks, threads=1)
    estimate = r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)"
    arguments = ["-m", model, "-f", text, "-c", n_ctx, "--chunks", n_chunks, "-t", 1]
    printed = re.search(estimate, oracle.prints(estimate, "llama-perplexity", *arguments))
    assert printed
    assert result.ppl == pytest.approx(float(printed[1]), rel=1e-4)
    assert result.error == pytest.approx(float(printed[2]), rel=1e-4)
