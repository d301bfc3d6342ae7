"""Records: what is in them, going on with an interrupted one, and files that are none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyquant import data
from pyquant.errors import ConfigError, OutputError
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import read_prompts
from pyquant.generation.speculative.record import along, predictions
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.record.predictions import readers
from pyquant.generation.speculative.record.record import ARRAYS, SCHEMA, Along, Record, read_record
from pyquant.generation.speculative.write.shared_cache import N_OWN
from pyquant.llama.model import Model
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.families import FAMILIES
from tests.support.taken_cache import taken_logits

MOST = 24


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Wanted:
    folder = tmp_path_factory.mktemp("record")
    quantize_model(data.model_path(), folder / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    prompts = folder / "prompts.jsonl"
    texts = ["def main(", "The module", "import os\n"]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return Wanted(data.model_path(), folder / "q4_0.gguf", prompts, n_samples=2, max_tokens=MOST)


def share_close(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of places where both are close.

    Other portions are other sums of floats. Activations are rounded to 8 bits, so here and there one becomes
    the next number, which what is said at that place shows.
    """
    return float(np.isclose(got, expected, rtol=1e-2, atol=1e-4).mean())


def test_where_a_text_begins_to_repeat_itself() -> None:
    first = along._first_repetition
    assert first([], [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6]) == 11
    assert first([], [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 7]) is None
    assert first([9, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6, 7]) == 6
    assert first([8] * 9, [8, 1]) == 0  # a prompt that repeats itself is no repetition of the text
    assert first([8] * 9, [1, 2]) is None


def test_means_are_over_places_where_something_is_drafted(wanted: Wanted) -> None:
    values = {name: np.array([0.5, 0.25, 0, 0]) for name in ("entropy", "token_p", "accepted")}
    text = Along(0, 0, False, 4, top_p=np.array([0.5, 1, 0, 0]), **values)
    nothing = Along(0, 0, False, 4, top_p=np.zeros(4), **values)
    source = wanted.source()
    record = Record(source, [text, nothing])
    assert record.acceptance == record.mean("entropy") == 0.375
    assert Record(source, [nothing]).acceptance is None


def test_a_text_up_to_its_first_repetition() -> None:
    values = np.arange(4) / 4
    text = Along(2, 0, True, 9, *[values] * 4, fresh=3)
    cut = text.before_repetition()
    assert (cut.prompt, cut.ended, len(cut)) == (2, False, 3)
    assert (cut.entropy == values[:3]).all()
    for whole in (None, 4, 9):
        assert dataclasses.replace(text, fresh=whole).before_repetition().ended


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_record_has_the_drafts_own_distribution(wanted: Wanted, temperature: float, tmp_path: Path) -> None:
    asked = Wanted(
        wanted.target, wanted.draft, wanted.prompts, max_tokens=MOST, temperature=temperature, seed=3
    )
    assert make_record(asked, tmp_path / "r", threads=1) == 0
    record = read_record(tmp_path / "r")
    assert record.source == asked.source()
    with Model(asked.target) as target:
        plan = make_plan(target, read_prompts(asked.prompts), max_tokens=MOST)
        for text, sample in zip(
            record.texts, sorted(generate(target, plan, asked.sampling), key=lambda s: s.prompt)
        ):
            assert (text.prompt, text.sample, text.ended) == (sample.prompt, 0, sample.finish == "end")
            assert len(text) == len(sample.log_p)
            prompt, n = plan.prompts[sample.prompt], len(sample.tokens)
            read = np.concatenate([prompt, np.array(sample.tokens, np.int32)])
            ends = range(len(prompt) - 1, len(prompt) - 1 + n)
            with target.context(n_ctx=len(read), threads=1) as context:
                of_target = context.decode(read[None], 0, np.isin(np.arange(len(read)), ends))[0].copy()
            of_draft = taken_logits(asked.target, asked.draft, read, ends, N_OWN, at_once=True)
            logits = [each.astype(np.float64) for each in (of_target, of_draft)]
            p, q = (np.exp(x - x.max(1, keepdims=True)) for x in (x / (temperature or 1) for x in logits))
            p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
            one = np.exp(logits[1] - logits[1].max(1, keepdims=True))
            one /= one.sum(1, keepdims=True)
            for got, own in ((text.entropy[:n], -(one * np.log(one)).sum(1)), (text.top_p[:n], one.max(1))):
                assert share_close(got, own) > 0.9
                np.testing.assert_allclose(got, own, rtol=0.1, atol=1e-4)
            tokens = np.array(sample.tokens)
            if temperature == 0:
                assert np.mean(text.accepted[:n] == (q.argmax(1) == tokens)) > 0.95  # but for ties
                np.testing.assert_array_equal(text.token_p, text.top_p)
            else:
                rows = np.arange(n)
                ratio = np.minimum(1, q[rows, tokens] / p[rows, tokens])
                np.testing.assert_allclose(text.accepted[:n], ratio, rtol=0.05, atol=1e-3)


def test_portions_do_not_matter(wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_record(wanted, tmp_path / "whole", threads=1)
    # Portions of 11 to 20 tokens: up to 8 are summed otherwise.
    monkeypatch.setattr(predictions, "PORTION", 20)
    make_record(wanted, tmp_path / "portions", threads=1)
    whole, portions = read_record(tmp_path / "whole"), read_record(tmp_path / "portions")
    for name in ARRAYS:
        if name != "accepted":
            assert share_close(whole.joined(name), portions.joined(name)) > 0.95, name
    assert np.mean(whole.joined("accepted") == portions.joined("accepted")) > 0.95


def test_a_record_sees_through_a_sliding_window(wanted: Wanted, tmp_path: Path) -> None:
    path = FAMILIES["Gemma 3"].write(tmp_path / "gemma.gguf")  # its window has 32 tokens
    with Model(path) as model, readers(model, model, 300, 1) as both:
        plan = make_plan(model, read_prompts(wanted.prompts)[:1], max_tokens=250)
        (sample,) = generate(model, plan, wanted.sampling, threads=1)
        assert len(sample.tokens) > 200
        for shared in (False, True):
            read = dataclasses.replace(both, shared=shared)
            text = along.along(read, plan.prompts[0], sample, 250)
            assert text.accepted.mean() > 0.95


def test_an_interrupted_record_goes_on(wanted: Wanted, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 6
        if done == 3:
            raise KeyboardInterrupt

    path, partial = tmp_path / "r", tmp_path / ".r.partial"
    with pytest.raises(KeyboardInterrupt):
        make_record(wanted, path, threads=1, progress=stop)
    assert not path.exists()
    with partial.open("a") as file:
        file.write('{"prompt": 2, "sam')  # cut off while it was written
    seen = []
    assert make_record(wanted, path, threads=1, progress=lambda done, total: seen.append(done)) == 3
    assert seen == [4, 5, 6]
    assert not partial.exists()
    make_record(wanted, tmp_path / "at once", threads=1)
    resumed, at_once = read_record(path), read_record(tmp_path / "at once")
    assert resumed.source == at_once.source
    for name in ARRAYS:
        np.testing.assert_array_equal(resumed.joined(name), at_once.joined(name))


def test_an_interrupted_record_of_something_else_is_not_gone_on_with(wanted: Wanted, tmp_path: Path) -> None:
    path, partial = tmp_path / "r", tmp_path / ".r.partial"
    make_record(wanted, path, threads=1)
    lines = path.read_text().splitlines(keepends=True)
    partial.write_text("".join(lines[:3]))
    path.unlink()
    other = Wanted(wanted.draft, wanted.draft, wanted.prompts, n_samples=2, max_tokens=MOST)
    with pytest.raises(ConfigError, match="an interrupted record of other models, prompts or settings"):
        make_record(other, path, threads=1)
    partial.write_text(lines[0].replace(SCHEMA, "pyquant.draft_record/0") + lines[1])
    with pytest.raises(ConfigError, match="is of another version"):
        make_record(wanted, path, threads=1)
    assert make_record(wanted, path, threads=1, force=True) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "is no output of `pyquant draft record`"),
        (lambda text: "{}\n", "is no output of `pyquant draft record`"),
        (lambda text: "[" * 100_000, "is no output of `pyquant draft record`"),
        (lambda text: text.replace(SCHEMA, "pyquant.draft_record/9"), "is of another version"),
        (lambda text: text.splitlines()[0] + "\n", "has no texts"),
        (lambda text: text[:-20], ":7: is damaged"),
        (lambda text: text.replace('"entropy": [', '"entropy": [NaN, ', 1), ":2: is damaged"),
        (lambda text: text.replace('"accepted": [', '"accepted": [7, ', 1), ":2: is damaged"),
        (lambda text: text.replace('"top_p"', '"top"', 1), ":2: is damaged"),
        (lambda text: text.replace('"sample": 0', '"sample": 1e400', 1), ":2: is damaged"),
    ],
)
def test_files_that_are_no_records(
    wanted: Wanted, damage: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "r"
    make_record(wanted, path, threads=1)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError, match=message.replace("`", ".")):
        read_record(path)


def test_what_is_there_is_not_replaced(wanted: Wanted, tmp_path: Path) -> None:
    (tmp_path / "r").write_text("precious")
    with pytest.raises(OutputError, match="exists; --force replaces it"):
        make_record(wanted, tmp_path / "r")
    (tmp_path / ".s.partial").symlink_to(tmp_path / "r")
    with pytest.raises(OutputError):
        make_record(wanted, tmp_path / "s", threads=1)
    assert (tmp_path / "r").read_text() == "precious"
