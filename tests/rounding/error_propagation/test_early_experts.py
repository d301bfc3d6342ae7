"""A model that sends tokens to experts before its attention's output is computed: SmallThinker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import MODEL_ARCH

from pyquant.calibration.calibrate import calibrate_model
from pyquant.evaluate.compare import compare_models
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.family import EXPERTS, Family

SMALLTHINKER = Family(
    MODEL_ARCH.SMALLTHINKER,
    {**EXPERTS, "expert_feed_forward_length": 64, "expert_gating_func": 2, "attention.sliding_window": 32},
)
CHUNKS = {"n_ctx": 64, "n_chunks": 20}  # two pieces


def test_the_experts_of_the_last_layer_are_those_of_the_pass(tmp_path: Path, text: Path) -> None:
    """Its experts' numbers were read from a pass of other tokens, and ended the process."""
    source = SMALLTHINKER.write(tmp_path / "source.gguf")
    calibrate_model(source, [text], tmp_path / "stats", threads=1, **CHUNKS)
    plain = {"mode": "ggml:IQ4_NL", "pure": True, "tensors": "blk"}
    modes = {
        "plain": plain,
        "propagated": {**plain, "hessian": tmp_path / "stats", "error_propagation": 20},
    }
    for name, mode in modes.items():
        quantize_model(source, tmp_path / name, make_mode(mode), threads=1)
    candidates = [tmp_path / name for name in modes]
    compared = compare_models(source, candidates, text, threads=1, **CHUNKS).to_json()["candidates"]
    plain_kld, propagated_kld = (candidate["kld"]["mean"] for candidate in compared)
    assert np.isfinite(propagated_kld)
    assert propagated_kld < 0.6 * plain_kld
