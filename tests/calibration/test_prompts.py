"""What a model is asked to write about."""

from __future__ import annotations

from itertools import islice

import pytest

from pyquant.calibration.prompts import OPENINGS, QUESTIONS, prompts
from pyquant.data import model_path
from pyquant.llama.model import Model


def test_forms_come_in_turn_with_words_of_the_vocabulary() -> None:
    with Model(model_path()) as model:
        vocabulary = model.vocabulary
        asked = list(islice(prompts(vocabulary, QUESTIONS, 1), 2 * len(QUESTIONS)))
        spelled = [b"".join(map(vocabulary.piece, tokens)).decode().strip() for tokens in asked]
        for form, prompt in zip(QUESTIONS * 2, spelled):
            before, after = form.split("{}")
            assert prompt.startswith(before)
            assert prompt.endswith(after)
            word = prompt.removeprefix(before).removesuffix(after)
            assert b" " + word.encode() in vocabulary.pieces()
        assert len(set(spelled)) > len(QUESTIONS)  # words differ
        assert asked == list(islice(prompts(vocabulary, QUESTIONS, 1), len(asked)))
        assert asked != list(islice(prompts(vocabulary, QUESTIONS, 2), len(asked)))


def test_a_vocabulary_without_words_gives_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(model_path()) as model:
        monkeypatch.setattr(model.vocabulary, "pieces", lambda: (b"", b"\xd0", b" the", b"The"))
        asked = list(islice(prompts(model.vocabulary, OPENINGS, 1), 8))
        assert {len(tokens) for tokens in asked} == {1}
        assert {token for (token,) in asked} <= set(model.vocabulary.ordinary_tokens().tolist())
