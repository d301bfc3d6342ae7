"""Texts of a target that are kept: records share them, and they are refused where they are of others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant import data
from pyquant.errors import ConfigError, OutputError
from pyquant.generation.speculative.record import make_record as making
from pyquant.generation.speculative.record import target_texts
from pyquant.generation.speculative.record.make_record import Wanted, make_record
from pyquant.generation.speculative.record.record import read_record
from pyquant.generation.speculative.write.pair import NGRAM
from pyquant.quantize.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Wanted:
    folder = tmp_path_factory.mktemp("texts")
    quantize_model(data.model_path(), folder / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("def main(", "import os\n")))
    return Wanted(data.model_path(), folder / "q4_0.gguf", prompts, n_samples=2, max_tokens=16)


@pytest.fixture(scope="module")
def kept(wanted: Wanted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    make_record(wanted, folder / "record", texts=folder / "texts", threads=1)
    return folder


def test_a_record_is_the_same_whether_texts_are_kept_or_not(
    wanted: Wanted, kept: Path, tmp_path: Path
) -> None:
    make_record(wanted, tmp_path / "record", threads=1)
    alone, shared = read_record(tmp_path / "record"), read_record(kept / "record")
    assert [text.to_line() for text in alone.texts] == [text.to_line() for text in shared.texts]


@pytest.mark.parametrize("draft", ["q4_0", NGRAM])
def test_another_record_does_not_write_them_again(
    wanted: Wanted, kept: Path, draft: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError

    monkeypatch.setattr(making, "generate", refuse)
    monkeypatch.setattr(target_texts, "generate", refuse)
    asked = wanted if draft == "q4_0" else dataclasses.replace(wanted, draft=NGRAM)
    seen = []
    make_record(
        asked, tmp_path / "r", texts=kept / "texts", threads=1, progress=lambda *done: seen.append(done)
    )
    assert seen == [(n, 4) for n in range(1, 5)]
    sizes = [len(text) for text in read_record(kept / "record").texts]
    assert [len(text) for text in read_record(tmp_path / "r").texts] == sizes


def test_interrupted_texts_go_on(wanted: Wanted, kept: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 8  # four texts are written, and run over
        if done == 2:
            raise KeyboardInterrupt

    partial = tmp_path / ".texts.partial"
    with pytest.raises(KeyboardInterrupt):
        make_record(wanted, tmp_path / "r", texts=tmp_path / "texts", threads=1, progress=stop)
    with partial.open("a") as file:
        file.write('{"prompt": 1, "num')  # cut off while it was written
    assert not (tmp_path / "texts").exists()
    seen = []
    make_record(
        wanted, tmp_path / "r", texts=tmp_path / "texts", threads=1,
        progress=lambda done, total: seen.append(done),
    )  # fmt: skip
    assert seen == [3, 4, 5, 6, 7, 8]
    assert not partial.exists()
    lines = [sorted((folder / "texts").read_text().splitlines()) for folder in (kept, tmp_path)]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"max_tokens": 17}, "max_tokens"),
        ({"n_samples": 1}, "n_samples"),
        ({"temperature": 1.0, "seed": 3}, "seed"),
    ],
)
def test_texts_of_something_else_are_refused(
    wanted: Wanted, kept: Path, changed: dict[str, float], named: str, tmp_path: Path
) -> None:
    other = dataclasses.replace(wanted, **changed)
    with pytest.raises(ConfigError, match=f"texts: is of other texts: .*{named}.* differ"):
        make_record(other, tmp_path / "r", texts=kept / "texts", threads=1)
    before = (kept / "texts").read_text().splitlines(keepends=True)
    (tmp_path / ".t.partial").write_text("".join(before[:2]))
    with pytest.raises(ConfigError, match="t: is of other texts"):
        make_record(other, tmp_path / "r", texts=tmp_path / "t", threads=1)
    assert (tmp_path / ".t.partial").read_text() == "".join(before[:2])
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "is no output of `pyquant draft record --texts`"),
        (lambda text: "{}\n", "is no output of `pyquant draft record --texts`"),
        (lambda text: text.replace("target_texts/1", "target_texts/9"), "is of another version"),
        (lambda text: text[:-20], ":5: is damaged"),
        (lambda text: text.replace('"tokens": [', '"tokens": [-1, ', 1), ":2: is damaged"),
        (lambda text: text.replace('"tokens": [', '"tokens": [1000000, ', 1), ":2: is damaged"),
        (lambda text: text.replace('"finish"', '"end"', 1), ":2: is damaged"),
        (lambda text: text.replace('"length"', '[]', 1), ":2: is damaged"),
        (lambda text: text.replace('"number": 0', '"number": 1e400', 1), ":2: is damaged"),
        (lambda text: text[: text.rindex("\n", 0, -1) + 1], "3 texts where 4 belong"),
        (lambda text: text.replace('"number": 0', '"number": 7', 1), "4 texts where 4 belong"),
    ],
)  # fmt: skip
def test_files_that_are_no_texts(
    wanted: Wanted, kept: Path, damage: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "texts").write_text(damage((kept / "texts").read_text()))
    with pytest.raises(ConfigError, match=message.replace("`", ".")):
        make_record(wanted, tmp_path / "r", texts=tmp_path / "texts", threads=1)


def test_a_record_does_not_replace_texts(wanted: Wanted, kept: Path) -> None:
    before = (kept / "texts").read_bytes()
    with pytest.raises(OutputError, match="is the input"):
        make_record(wanted, kept / "texts", texts=kept / "texts", force=True, threads=1)
    assert (kept / "texts").read_bytes() == before
