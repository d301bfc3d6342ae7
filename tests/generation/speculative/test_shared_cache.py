"""Keys and values that a draft takes from its target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ModelFileError
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.model_draft import ModelDraft
from pyquant.generation.speculative.decoding.pair import open_draft
from pyquant.generation.speculative.decoding.shared_cache import suits
from pyquant.llama.model import Model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.models import Model as Generated
from tests.support.taken_cache import taken_logits

SMALL = {"n_embd": 32, "n_ff": 32, "n_layer": 2, "n_head": 2, "n_head_kv": 2}
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def q4_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "q4_0.gguf"
    quantize_model(data.model_path(), path, make_mode({"mode": "q4_0"}), threads=1)
    return path


def its_suits(target: Path, draft: Path, n_views: int = 1) -> bool:
    with (
        Model(target) as model,
        Model(draft) as of_draft,
        Session(model, 1, 64, n_views=1, threads=1) as base,
        Session(of_draft, 1, 64, n_views=n_views, threads=1) as cheap,
    ):
        return suits(base, cheap)


def test_they_suit_the_same_model_in_fewer_bits(q4_0: Path) -> None:
    assert its_suits(data.model_path(), q4_0)
    assert not its_suits(data.model_path(), q4_0, n_views=0)


def test_they_suit_no_model_that_computes_others(tmp_path: Path) -> None:
    def with_other_signs(name: str, weights: np.ndarray) -> np.ndarray:
        return -weights if name.endswith(("attn_v.weight", "attn_output.weight")) else weights

    target = Generated(**SMALL).write(tmp_path / "target.gguf")
    same = Generated(**SMALL, change=with_other_signs).write(tmp_path / "same.gguf")
    assert not its_suits(target, same)  # it says the same, but its values have other signs
    for name, shape in (("layers", {"n_layer": 3}), ("heads", {"n_head_kv": 1})):
        assert not its_suits(target, Generated(**SMALL | shape).write(tmp_path / f"{name}.gguf"))


def test_caches_of_other_shapes_are_refused(tmp_path: Path) -> None:
    target = Generated(**SMALL).write(tmp_path / "target.gguf")
    other = Generated(**SMALL | {"n_layer": 3}).write(tmp_path / "other.gguf")
    with (
        Model(target) as model,
        Model(other) as its_model,
        Session(model, 1, 16, n_views=1, threads=1) as giver,
        Session(its_model, 1, 16, n_views=1, threads=1) as session,
    ):
        giver.extend(0, np.arange(8, dtype=np.int32))
        with pytest.raises(ModelFileError, match=r"other\.gguf: cannot take keys .* of .*target\.gguf"):
            session.take(giver, 0, 8)


def test_the_same_model_goes_on_as_if_it_had_read_all_itself() -> None:
    tokens = np.random.default_rng(0).integers(0, 256, 40).astype(np.int32)
    with (
        Model(data.model_path()) as model,
        Session(model, 1, 64, n_views=1, threads=1) as giver,
        Session(model, 1, 64, n_views=1, threads=1) as session,
    ):
        giver.extend(0, tokens[:30])
        session.take(giver, 0, 30)
        assert session.lengths[0] == 30
        np.testing.assert_array_equal(session.extend(0, tokens[30:31]), giver.extend(0, tokens[30:31]))
        # Tokens that only the giver read since then, and some of the session's own in their place.
        session.extend(0, tokens[:3])
        giver.extend(0, tokens[31:35])
        session.take(giver, 31, 35)
        np.testing.assert_array_equal(session.extend(0, tokens[35:36]), giver.extend(0, tokens[35:36]))
        session.take(giver, 20, 20)
        giver.roll_back(0, 20)
        np.testing.assert_array_equal(session.extend(0, tokens[:1]), giver.extend(0, tokens[:1]))


def test_each_round_begins_with_what_the_target_has_verified(q4_0: Path) -> None:
    tokens = np.random.default_rng(2).integers(0, 256, 30).tolist()

    def expected(text: list[int], n_own: int) -> np.ndarray:
        return taken_logits(data.model_path(), q4_0, np.array(text, np.int32), len(text), n_own)

    with (
        Model(data.model_path()) as model,
        Session(model, 1, 64, n_views=1, threads=1) as session,
        open_draft(q4_0, session, GREEDY, threads=1) as draft,
    ):
        assert isinstance(draft, ModelDraft)
        assert draft.takes
        session.extend(0, np.array(tokens[:10], np.int32))
        text = tokens[:11]
        for accepted, drafted in ((2, 3), (0, 1), (3, 3)):
            for n in range(drafted):
                proposed = draft.propose([*text, *tokens[len(text) : len(text) + n]], None, 0.5)
                assert proposed is not None
                so_far = [*text, *tokens[len(text) : len(text) + n]]
                np.testing.assert_array_equal(proposed.logits, expected(so_far, n))
            read = [text[-1], *tokens[len(text) : len(text) + drafted]]
            session.follow(0, np.array(read, np.int32))
            session.roll_back(0, len(text) + accepted)
            draft.keep(len(text) + accepted)
            text = tokens[: len(text) + accepted + 1]
