"""A calibration that nobody names a text for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyquant.calibration import Calibration
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.prompts import FILES, OPENINGS, QUESTIONS, prompts
from pyquant.calibration.sources import CODE, DIALOGUES, MIXTURE, PROGRAMS, SEED, TEXTS, dialogue_marks
from pyquant.calibration.wanted import chunks_of, wanted_texts
from pyquant.data import model_path
from pyquant.errors import ConfigError
from pyquant.llama.model import Model
from tests.support.command import ENVIRONMENT, run

OPTIONS = {"n_ctx": 64, "threads": 1}


@pytest.mark.ci
def test_the_mixture_is_the_same_again_and_recorded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        calibrate_model(
            model_path(), None, tmp_path / name, n_chunks=12, imatrix=tmp_path / f"{name}.i", **OPTIONS
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    texts = Calibration.read(tmp_path / "a").origin.texts
    assert [text.path for text in texts] == [*(text.name for text in MIXTURE), "random tokens"]
    assert sum(text.n_chunks for text in texts[:-1]) == 12
    assert all(len(text.sha256) == 64 for text in texts[:-1])
    assert texts[-1].n_chunks == 3


def test_every_text_has_its_share() -> None:
    for n_chunks in (1, 4, 10, 128):
        wanted = wanted_texts(None, None, n_chunks)
        parts = {wish.text: wish.weight * wish.n_chunks for wish in wanted}
        assert parts == pytest.approx({text: share * n_chunks for text, share in MIXTURE.items()})
        assert all(wish.n_chunks >= 1 for wish in wanted)
    assert sum(MIXTURE.values()) == pytest.approx(1)


def test_texts_without_a_file_go_with_others(text: Path, tmp_path: Path) -> None:
    report = calibrate_model(
        model_path(), [text, CODE], tmp_path / "stats", weights=[1, 2], n_chunks=3, random=0, **OPTIONS
    )
    assert [(used.path, used.weight, used.n_chunks) for used in report.texts] == [
        (str(text), pytest.approx(2 / 3), 3),
        (CODE.name, pytest.approx(4 / 3), 3),
    ]


def test_code_is_of_many_modules() -> None:
    with Model(model_path()) as model:
        chunks = CODE.take(model, 64, 20)
        assert chunks.tokens.shape == (20, 64)
        assert len({tuple(chunk) for chunk in chunks.tokens}) == 20


def test_a_model_without_a_template_writes_texts() -> None:
    with Model(model_path()) as model:
        assert dialogue_marks(model) is None
        bos = [] if model.vocabulary.bos is None else [model.vocabulary.bos]
        written = []
        sources = {TEXTS: (OPENINGS, 0), PROGRAMS: (FILES, 1), DIALOGUES: (OPENINGS, 2)}
        taken = chunks_of(wanted_texts(list(sources), None, 1), model, 32, 1, None)
        for (forms, seed), chunks in zip(sources.values(), taken):
            chunk = chunks.tokens[0].tolist()
            begun = [*bos, *next(prompts(model.vocabulary, forms, SEED + seed))]
            assert chunk[: len(begun)] == begun
            written.append(chunk)
        assert written[0] != written[2]


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_turns_are_told_apart_by_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(model_path()) as model:
        monkeypatch.setattr(model, "chat_template", lambda: TEMPLATE)
        marks = dialogue_marks(model)
        spelled = [b"".join(model.vocabulary.piece(t, special=True) for t in mark).decode() for mark in marks]
        begin, _ = model.vocabulary.begin_and_end()
        assert spelled == [
            f"{begin}<|im_start|>user\n",
            "<|im_end|>\n<|im_start|>assistant\n",
            "<|im_end|>\n<|im_start|>user\n",
        ]
        (dialogues,) = chunks_of(wanted_texts([DIALOGUES], None, 1), model, 48, 1, None)
        dialogue = dialogues.tokens[0]
        asked = next(prompts(model.vocabulary, QUESTIONS, SEED))
        begun = [*marks[0], *asked, *marks[1]]
        assert dialogue[: len(begun)].tolist() == begun
        monkeypatch.setattr(model, "chat_template", lambda: "{{ messages[0].content }}")
        assert dialogue_marks(model) is None  # what is said is left out


def test_weights_are_of_texts() -> None:
    with pytest.raises(ConfigError, match="weight: is of a text, and none is given"):
        wanted_texts(None, [1.0], None)
    with pytest.raises(ConfigError, match="text: at least one is needed"):
        wanted_texts([], None, None)


@pytest.mark.ci
def test_the_command(tmp_path: Path) -> None:
    options = ["--chunks", 4, "--ctx", 64, "--threads", 1, "--json"]
    ran = run("calibrate", model_path(), "-o", tmp_path / "stats", *options)
    assert ran.returncode == 0, ran.stderr
    texts = json.loads(ran.stdout)["texts"]
    assert [text["path"] for text in texts[:-1]] == [text.name for text in MIXTURE]


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopped_while_the_model_writes_it_leaves_nothing(tmp_path: Path, number: int) -> None:
    arguments = ["calibrate", model_path(), "-o", tmp_path / "stats", "--chunks", 128, "--threads", 1]
    command = [sys.executable, "-m", "pyquant", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENVIRONMENT)
    time.sleep(4)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGKILL)
    assert b"Traceback" not in said
    assert list(tmp_path.iterdir()) == []
