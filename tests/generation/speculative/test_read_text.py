"""Texts that both models read: what drafting would gain, before a token is drafted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import TextError
from pyquant.evaluate.compare import compare_models
from pyquant.files.text import Text
from pyquant.generation.speculative.record import predictions
from pyquant.generation.speculative.record.read_text import Reading, record_of_text
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

TEXT = Text(Path("prose.txt"), data.evaluation_text()[:20_000].encode())


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("draft") / "q4_0.gguf"
    quantize_model(data.model_path(), path, make_mode({"mode": "q4_0"}), threads=1)
    return path


def test_acceptance_of_a_draft_that_reads_itself_is_what_compare_finds(
    draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "suits", lambda target, draft: False)
    compared = compare_models(data.model_path(), [draft], TEXT, n_ctx=256, n_chunks=8, threads=1)
    found = compared.to_json()["candidates"][0]
    for temperature, name in ((0.0, "same_top"), (1.0, "sampled_acceptance")):
        reading = Reading(n_ctx=256, n_chunks=8, temperature=temperature)
        record = record_of_text(data.model_path(), draft, TEXT, reading, threads=1)
        assert [len(text) for text in record.texts] == [128] * 8
        # `compare` leaves out the first token of the half. It may compute chunks side by side: a few ties.
        accepted = np.concatenate([text.accepted[1:] for text in record.texts])
        assert accepted.mean() == pytest.approx(found[name]["share"], abs=0.002)
        assert record.source.temperature == temperature


def test_more_is_accepted_of_a_draft_that_takes_what_its_target_has_read(
    draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(n_ctx=256, n_chunks=8)
    taken = record_of_text(data.model_path(), draft, TEXT, reading, threads=1)
    monkeypatch.setattr(predictions, "suits", lambda target, draft: False)
    own = record_of_text(data.model_path(), draft, TEXT, reading, threads=1)
    assert [len(text) for text in taken.texts] == [len(text) for text in own.texts]
    assert taken.acceptance is not None
    assert own.acceptance is not None
    assert taken.acceptance > own.acceptance + 0.01


def test_a_model_is_sure_of_itself() -> None:
    reading = Reading(n_ctx=64, n_chunks=2, temperature=0.5)
    record = record_of_text(data.model_path(), data.model_path(), TEXT, reading, threads=1)
    assert record.acceptance == pytest.approx(1, abs=1e-6)
    assert (record.joined("top_p") >= record.joined("token_p") * (1 - 1e-6)).sum() > 0


def test_what_is_refused(draft: Path) -> None:
    with pytest.raises(TextError, match="too short"):
        record_of_text(data.model_path(), draft, Text(Path("t"), b"short"), Reading())
