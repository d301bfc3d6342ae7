"""Models with attention in a latent space (MLA) of one head, whose matrices GGML repacks.

Chunks side by side ended the process. Of a single one GGML multiplied other activations in silence: of a
view, the rows that follow the first one in memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.evaluate.compare import compare_models
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.llama.model import Model as LlamaModel
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.oracle import Oracle
from tests.support.other_models import latent
from tests.support.stock_logits import StockLogits

TYPES = ("Q4_0", "Q4_K_M", "IQ4_NL")  # that GGML repacks
ROUNDED = 0.02  # of logits: activations that another order of sums rounds to other 8-bit codes
CHUNKS = {"n_ctx": 64, "n_chunks": 33}


def quantized(folder: Path, type_: str) -> tuple[Path, Path]:
    base = latent(folder / "base.gguf")
    quantize_model(base, folder / "out.gguf", make_mode({"mode": f"ggml:{type_}"}))
    return base, folder / "out.gguf"


@pytest.mark.parametrize("type_", TYPES)
def test_chunks_side_by_side_say_what_single_ones_say(
    tmp_path: Path, text: Path, type_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, model = quantized(tmp_path, type_)
    beside = measure_perplexity(model, text, **CHUNKS, threads=1)
    compared = compare_models(base, [model], text, **CHUNKS, threads=1)
    monkeypatch.setattr("pyquant.llama.chunks.BATCH", 64)
    alone = measure_perplexity(model, text, **CHUNKS, threads=1)
    # Other orders of sums round some activations to other 8-bit codes; other activations are 4 % and more.
    assert beside.ppl == pytest.approx(alone.ppl, rel=1e-3)
    assert compared.candidates[0].perplexity == pytest.approx(beside.ppl, rel=1e-12)


@pytest.mark.parametrize("n_seq", [1, 3])
@pytest.mark.parametrize("type_", TYPES)
def test_repacked_matrices_say_what_stored_ones_say(tmp_path: Path, type_: str, n_seq: int) -> None:
    _, path = quantized(tmp_path, type_)
    n = 32
    tokens = np.random.default_rng(2).integers(3, 300, (n_seq, n)).astype(np.int32)
    logits = []
    for as_stored in (False, True):
        with (
            LlamaModel(path, as_stored=as_stored) as model,
            model.context(n_ctx=n, n_seq=n_seq, threads=2) as context,
        ):
            logits.append(context.decode(tokens, 0, np.ones(n, bool)).copy())
    assert logits[0].std() > 0.5
    assert np.abs(logits[0] - logits[1]).mean() < ROUNDED * logits[0].std()


@pytest.mark.oracle
@pytest.mark.parametrize("type_", TYPES)
def test_llama_perplexity_says_the_same(oracle: Oracle, tmp_path: Path, text: Path, type_: str) -> None:
    """Without --no-repack it ends by GGML_ASSERT(ne13 == 1)."""
    _, model = quantized(tmp_path, type_)
    logits = tmp_path / "logits"
    arguments = ["-m", model, "-f", text, "-c", 64, "--chunks", 33, "--no-repack"]
    oracle.run("llama-perplexity", *arguments, "--kl-divergence-base", logits)
    theirs = StockLogits.read(logits).perplexity
    assert measure_perplexity(model, text, **CHUNKS).ppl == pytest.approx(theirs, rel=1e-4)
