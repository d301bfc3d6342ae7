"""Drafts, and whether they fit their target."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError, NotEnoughMemory
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.ngram_draft import NgramDraft
from pyquant.generation.speculative.decoding.pair import check_both, check_pair, draft_ctx, open_draft
from pyquant.llama.model import Model
from pyquant.models.model_file import open_model
from tests.support.models import Model as Generated


def test_what_followed_most_often_is_proposed() -> None:
    draft = NgramDraft()
    assert draft.propose([1, 2, 3], None, 0.5) is None
    tokens = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 9, 1, 2]
    draft.begin()
    drafted = draft.propose(tokens, None, 0.5)
    assert drafted is not None
    # The last four tokens are 3 9 1 2: after them came 4, once; the two before these were the same as well.
    assert (drafted.token, drafted.logits, drafted.sure) == (4, None, (0, 1, 1, 6))
    draft.begin()
    drafted = draft.propose([1, 2, 3, 7, 1, 2, 4, 8, 1, 2, 3, 6, 1, 2], None, 0.5)
    assert drafted is not None
    assert (drafted.token, *drafted.sure[1:]) == (3, 2 / 3, 2 / 3, 4)  # two tokens, twice
    assert drafted.sure.entropy == pytest.approx(-2 / 3 * math.log(2 / 3) - 1 / 3 * math.log(1 / 3))
    draft.begin()
    drafted = draft.propose([1, 2, 3, 7, 1, 2, 4, 8, 1, 2], None, 0.5)
    assert drafted is not None
    assert drafted.token == 4  # of two that came as often, the latest


def test_a_lookup_forgets_what_was_refused() -> None:
    draft = NgramDraft()
    text = [1, 2, 3, 4, 1, 2]
    for refused in ([3, 4, 1, 2, 3], [3], []):
        for n in range(len(refused) + 1):
            draft.propose([*text, *refused[:n]], None, 0.5)
        draft.keep(len(text))
    draft.keep(3)
    fresh = NgramDraft()
    other = [1, 2, 3, 5, 2, 3]
    assert draft.propose(other, None, 0.5) == fresh.propose(other, None, 0.5)


def test_a_lookup_keeps_to_the_mask() -> None:
    tokens = [1, 2, 40, 1, 2]
    words = np.zeros(2, np.int32)
    assert NgramDraft().propose(tokens, words, 0.5) is None
    words[1] = 1 << 8
    drafted = NgramDraft().propose(tokens, words, 0.5)
    assert drafted is not None
    assert drafted.token == 40


def test_vocabularies_that_differ_are_named_with_the_first_difference(tmp_path: Path) -> None:
    small = {"n_embd": 32, "n_ff": 32, "n_layer": 1, "n_head": 2, "n_head_kv": 2}
    target = Generated(**small, n_vocab=300).write(tmp_path / "target.gguf")
    longer = Generated(**small, n_vocab=320).write(tmp_path / "longer.gguf")
    check_pair(target, target)
    with pytest.raises(
        ConfigError, match=r"longer.gguf cannot draft for .*first at token 300: .* in the draft, none"
    ):
        check_pair(target, longer)
    with pytest.raises(ConfigError, match="cannot draft for"):
        check_pair(target, data.model_path())
    with (
        Model(target) as model,
        Session(model, 1, 64, threads=1) as session,
        pytest.raises(ConfigError, match="cannot draft for"),
        open_draft(str(data.model_path()), session, Sampling(), threads=1),
    ):
        pass


def test_a_draft_without_vocabulary_is_refused(tmp_path: Path) -> None:
    bare = Generated(n_layer=1, tokenizer=False).write(tmp_path / "bare.gguf")
    with pytest.raises(ConfigError, match=r"bare\.gguf: has no vocabulary"):
        check_pair(bare, bare)


def test_room_for_both_is_asked_for_before_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    model = data.model_path()
    check_both(model, model, 64)
    monkeypatch.setattr("pyquant.machine.memory.free_address_space", lambda: 100_000_000)
    with pytest.raises(NotEnoughMemory, match=r"pylm-5M-f16.gguf and its draft"):
        check_both(model, model, 64)


def test_a_draft_that_was_trained_with_less_context_is_known(tmp_path: Path) -> None:
    assert draft_ctx(data.model_path(), data.model_path()) is None
    small = Generated(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2).write(tmp_path / "small.gguf")
    (trained,) = {open_model(small).hyperparameter("context_length")}
    assert trained < open_model(data.model_path()).hyperparameter("context_length")
    assert draft_ctx(data.model_path(), small) == trained
    assert draft_ctx(small, data.model_path()) is None
