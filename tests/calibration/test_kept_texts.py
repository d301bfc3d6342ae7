"""Texts that a model generates are kept, and taken again by whoever wants the same ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyquant.calibration import kept_texts
from pyquant.calibration.kept_texts import ToWrite, write_texts
from pyquant.calibration.prompts import OPENINGS
from pyquant.data import model_path
from pyquant.llama.model import Model
from pyquant.llama.own_texts import MOST, OwnText
from pyquant.machine.caches import CACHE

ASKED = ToWrite(OPENINGS, seed=3, before=[], after=[])
N_CTX = 12

# Prints when a token is written.
PROGRAM = """
import sys
from pyquant.calibration.kept_texts import ToWrite, write_texts
from pyquant.calibration.prompts import OPENINGS
from pyquant.data import model_path
from pyquant.llama.model import Model
asked = [(ToWrite(OPENINGS, seed=3, before=[], after=[]), int(sys.argv[1]))]
with Model(model_path()) as model:
    write_texts(model, asked, 12, 1, lambda done, total: print(done, flush=True))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "texts"


def _written(n_chunks: int, asked: ToWrite = ASKED) -> tuple[np.ndarray, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    with Model(model_path()) as model:
        (chunks,) = write_texts(model, [(asked, n_chunks)], N_CTX, 1, lambda *done: told.append(done))
    return chunks.tokens, told


def test_what_was_written_is_taken_again(folder: Path) -> None:
    n = 2 * MOST + 1
    first, told = _written(n)
    assert [total for _, total in told] == [n * N_CTX] * len(told)
    done = [done for done, _ in told]
    assert done == sorted(done)
    assert done[-1] == n * N_CTX
    again, told = _written(n)
    np.testing.assert_array_equal(again, first)
    assert not told
    assert len(list(folder.iterdir())) == 3
    assert not np.array_equal(_written(n, ToWrite(OPENINGS, seed=4, before=[], after=[]))[0], first)


def test_fewer_and_more_share_what_is_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = _written(2 * MOST)
    more, told = _written(2 * MOST + 3)
    assert told[0][0] > 2 * MOST * N_CTX
    np.testing.assert_array_equal(more[: len(few)], few)
    monkeypatch.setenv(CACHE, "")
    anew, _ = _written(2 * MOST + 3)  # prompts go on where those of the kept chunks ended
    np.testing.assert_array_equal(more, anew)


def test_what_is_asked_differently_is_written_together(folder: Path) -> None:
    other = ToWrite(OPENINGS, seed=4, before=[], after=[])
    told: list[tuple[int, int]] = []
    with Model(model_path()) as model:
        for _ in range(2):  # written, and taken
            one, two = write_texts(
                model, [(ASKED, MOST - 3), (other, 5)], N_CTX, 1, lambda *done: told.append(done)
            )
            assert (one.n_chunks, two.n_chunks) == (MOST - 3, 5)
            assert len(told) == 2 * N_CTX
        assert len(list(folder.iterdir())) == 2
        for asked, chunks in ((ASKED, one), (other, two)):
            for prompt, chunk in zip(asked.prompts(model.vocabulary), chunks.tokens[:2]):
                assert chunk[: len(prompt)].tolist() == prompt[:N_CTX]
        assert write_texts(model, [], N_CTX, 1, None) == []


def test_turns_stand_where_the_model_ends_and_take_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[list[int]] = []
    monkeypatch.setattr(kept_texts, "write_together", _all_ends(ends))
    asked = ToWrite(OPENINGS, seed=3, before=[1], after=[2], turns=([5], [6, 7]))
    _written(1, asked)
    assert ends[0][0] == 1
    assert ends[0][-1] == 2
    assert ends[1:] == [[5], [6, 7], [5]]
    ends.clear()
    _written(2, ToWrite(OPENINGS, seed=3, before=[1], after=[2]))
    assert all(begun[0] == 1 for begun in ends)


def _all_ends(ends: list[list[int]]) -> object:
    def write(model: Model, texts: list[OwnText], n_tokens: int, **_: object) -> np.ndarray:
        ends.extend(texts[0].begin(i) for i in range(4))
        return np.zeros((len(texts), n_tokens), np.int32)

    return write


@pytest.mark.parametrize("damage", ["cut off", "other", "impossible", "empty"])
def test_what_cannot_be_used_is_written_anew(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = _written(2)
    (path,) = folder.iterdir()
    if damage == "cut off":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        tokens = first[:1] if damage == "other" else first + 1_000_000
        with path.open("wb") as file:
            np.savez(file, tokens=tokens, n_prompts=np.array([2]))
    again, told = _written(2)
    np.testing.assert_array_equal(again, first)
    assert told
    assert f"{path}: written anew" in caplog.text
    assert not _written(2)[1]


def test_a_folder_that_cannot_be_written_is_named_once(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert _written(1)[0].shape == (1, N_CTX)
    assert "what the model wrote is not kept (PYQUANT_CACHE)" in caplog.text


def test_killed_it_goes_on_behind_what_was_written_together(folder: Path) -> None:
    n = MOST + 2
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(n)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) > MOST * N_CTX:
            break
    process.kill()
    process.communicate()
    assert len(list(folder.iterdir())) == 1
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(n)], capture_output=True, text=True, check=True)
    assert int(ran.stdout.split()[0]) > MOST * N_CTX
