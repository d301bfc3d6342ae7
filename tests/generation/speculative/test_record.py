"""Records: what is in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.decoding.shared_cache import SPAN
from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.replay.record import Along, Record, Said, make_record
from pyquant.llama.model import Model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.families import FAMILIES
from tests.support.taken_cache import taken_logits

PROMPTS = [Prompt(text) for text in ("def main(", "The module", "import os\n")]
GREEDY = Sampling(temperature=0)


def test_acceptance_is_of_places_where_something_is_drafted() -> None:
    sure = Certainty(0.5, 0.5, 0.5)
    text = Along([Said(sure, True), Said(sure, False), Said(None, False)], ended=False)
    record = Record([text, Along([Said(None, False)], ended=True)], 4, drawn=False)
    assert (record.n_tokens, record.acceptance) == (4, 0.5)
    assert Record([], 4, drawn=False).acceptance is None


def test_a_record_has_the_drafts_own_distribution(tmp_path: Path) -> None:
    """A draft has its own keys and values of the tokens of a span, and its target's of those before it."""
    target, draft = data.model_path(), tmp_path / "q4_0.gguf"
    quantize_model(target, draft, make_mode({"mode": "q4_0"}))
    record = make_record(target, draft, PROMPTS, sampling=GREEDY, n_samples=2, max_tokens=24, threads=1)
    assert record.completions[0] == record.completions[1]
    with Model(target) as model:
        plan = make_plan(model, PROMPTS, max_tokens=24)
        samples = sorted(generate(model, plan, GREEDY, threads=1), key=lambda sample: sample.prompt)
    for text, sample in zip(record.completions[::2], samples):
        prompt, n = plan.prompts[sample.prompt], len(sample.tokens)
        assert (len(text.said), text.ended) == (len(sample.log_p), sample.finish == "end")
        read = np.concatenate([prompt, np.array(sample.tokens, np.int32)])
        for i in range(n):
            logits = taken_logits(target, draft, read[: len(prompt) + i], len(prompt), i % SPAN)
            p = np.exp(logits.astype(float) - logits.max())
            p /= p.sum()
            (entropy, top_p, token_p, matched), accepted = text.said[i]
            assert entropy == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
            assert top_p == token_p == pytest.approx(p.max(), rel=1e-5)
            assert matched == 0  # of n-gram drafts
            assert accepted == (p.argmax() == sample.tokens[i])


def test_a_record_sees_through_a_sliding_window(tmp_path: Path) -> None:
    path = FAMILIES["Gemma 3"].write(tmp_path / "gemma.gguf")  # its window has 32 tokens
    record = make_record(path, path, PROMPTS[:1], sampling=GREEDY, max_tokens=250, threads=1)
    assert record.n_tokens > 200
    assert record.acceptance is not None
    assert record.acceptance > 0.95
