"""Ranks of tokens in logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from pyquant.errors import ModelFileError
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.evaluate.ranks import measure_ranks, ranks_of
from tests.support.models import Model


def test_ranks_are_places_in_the_sorted_logits() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(40, 100)).astype(np.float32)
    targets = rng.integers(0, 100, 40).astype(np.int32)
    order = np.argsort(-logits, axis=1)
    places = [list(row).index(target) + 1 for row, target in zip(order, targets)]
    assert ranks_of(logits, targets).tolist() == places


def test_equal_logits_share_the_last_rank() -> None:
    logits = np.array([[1.0, 3.0, 3.0, 0.0]], np.float32)
    assert [int(ranks_of(logits, np.array([i], np.int32))[0]) for i in range(4)] == [3, 2, 2, 4]


def test_probabilities_are_the_perplexitys(text: Path, tmp_path: Path) -> None:
    model = Model().write(tmp_path / "model.gguf")
    ranked = measure_ranks(model, [], text, n_ctx=64, n_chunks=3)
    (probabilities,) = ranked.probabilities
    alone = measure_perplexity(model, text, n_ctx=64, n_chunks=3)
    assert len(ranked.ranks) == len(probabilities) == alone.n_tokens
    assert np.exp(-np.log(probabilities.astype(np.float64)).mean()) == pytest.approx(alone.ppl, rel=1e-5)


class OtherLetters(Model):
    """A model with as many tokens, of which two letters have changed places."""

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        add = writer.add_token_list
        writer.add_token_list = lambda names: add([{"t": "e", "e": "t"}.get(name, name) for name in names])
        super().add_tokenizer(writer)


@pytest.mark.parametrize("other", [Model(n_vocab=330), OtherLetters()], ids=["more tokens", "other tokens"])
def test_vocabularies_must_agree(other: Model, text: Path, tmp_path: Path) -> None:
    models = [Model(seed=seed).write(tmp_path / f"{seed}.gguf") for seed in range(2)]
    options = {"n_ctx": 64, "n_chunks": 1}
    first, second = measure_ranks(models[0], models[1:], text, **options).probabilities
    assert len(first) == len(second)
    assert (first != second).any()
    models.append(other.write(tmp_path / "other.gguf"))
    with pytest.raises(
        ModelFileError, match=r"other\.gguf: its vocabulary is another one than that of .*0\.gguf"
    ):
        measure_ranks(models[0], models[1:], text, **options)
