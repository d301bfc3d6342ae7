"""Multiple-choice questions: against llama-perplexity's answers, question by question, and by definition."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax

from pyquant.errors import ConfigError, TextError
from pyquant.evaluate.accuracy import FORMATS, measure_accuracy
from pyquant.evaluate.questions.draw import draw_by_floats, draw_by_integers
from pyquant.evaluate.questions.flips import flips
from pyquant.evaluate.questions.question import Question
from pyquant.evaluate.questions.text_files import read_winogrande
from pyquant.llama.model import Model as RunningModel
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.command import run
from tests.support.families import FAMILIES
from tests.support.models import Model
from tests.support.oracle import Oracle
from tests.support.questions import write_hellaswag, write_multiple_choice, write_winogrande

WRITE = {
    "hellaswag": write_hellaswag,
    "winogrande": write_winogrande,
    "multiple_choice": write_multiple_choice,
}
N = 40


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("asked")
    model = Model().write(folder / "model.gguf")
    quantize_model(model, folder / "q4_0.gguf", make_mode({"mode": "q4_0"}))
    return [model, folder / "q4_0.gguf"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("questions")
    return {name: write(folder / name, N) for name, write in WRITE.items()}


def stock(oracle: Oracle, model: Path, format_: str, file: Path, n: int = N) -> list[list[str]]:
    """What llama-perplexity prints of n drawn questions, in fields.

    At times a line is printed twice.
    """
    option, read = f"--{format_.replace('_', '-')}", "-bf" if format_ == "multiple_choice" else "-f"
    drawn = [f"{option}-tasks", n] if n < N else []
    printed = oracle.prints(
        rf"(?m)^{n - 2}\t.*\n", "llama-perplexity", "-m", model, option, read, file, "-t", 1, *drawn
    )
    lines = [line.split() for line in printed.splitlines() if re.match(r"\d+\t", line)]
    return list({line[0]: line for line in lines}.values())


def assert_same_answers(ours: NDArray[np.bool_], lines: list[list[str]]) -> None:
    """Compare right answers with the shares of them that llama-perplexity prints after each question."""
    n_right = [round(float(line[1].strip("%")) / 100 * n) for n, line in enumerate(lines, 1)]
    assert ours.astype(int)[: len(lines)].tolist() == np.diff([0, *n_right]).tolist()


@pytest.mark.oracle
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("format_", WRITE)
def test_every_answer_is_that_of_llama_perplexity(
    oracle: Oracle, models: list[Path], files: dict[str, Path], format_: str, which: int
) -> None:
    ours = measure_accuracy(models[which], [], {format_: files[format_]}, threads=1).files[0].answers[0]
    lines = stock(oracle, models[which], format_, files[format_])
    order = draw_by_integers(N, N) if format_ == "hellaswag" else range(N)
    assert_same_answers(ours.right[list(order)], lines)
    if format_ == "winogrande":
        scores = np.array([[float(score) for score in line[2:4]] for line in lines])
        np.testing.assert_allclose(ours.scores[: len(lines)], scores, atol=1e-4)
        assert [int(line[4]) - 1 for line in lines] == ours.chosen.tolist()[: len(lines)]


@pytest.mark.oracle
@pytest.mark.parametrize("format_", WRITE)
def test_the_questions_that_llama_perplexity_draws(
    oracle: Oracle, models: list[Path], files: dict[str, Path], format_: str
) -> None:
    lines = stock(oracle, models[0], format_, files[format_], 15)
    report = measure_accuracy(models[0], [], {format_: files[format_]}, n_questions=15, threads=1).files[0]
    assert_same_answers(report.answers[0].right, lines)
    assert report.n_in_file == N


@pytest.fixture(params=["attention", "states"])
def asked(request: pytest.FixtureRequest, models: list[Path], tmp_path: Path) -> Path:
    """A model; llama-perplexity refuses one with states, as answers are branches of one context."""
    return models[0] if request.param == "attention" else FAMILIES["Mamba"].write(tmp_path / "mamba.gguf")


def test_a_score_is_the_mean_log_probability_of_the_answers_own_tokens(asked: Path, tmp_path: Path) -> None:
    file = write_multiple_choice(tmp_path / "questions", 3, seed=5)
    report = measure_accuracy(asked, [], {"multiple_choice": file}, threads=1).files[0]
    with RunningModel(asked) as model, model.context(n_ctx=64, threads=1) as context:
        for question, scores in zip(report.questions, report.answers[0].scores):
            tokens = [model.vocabulary.tokenize(text) for text in question.texts]
            shared = next(i for i in range(64) if len({own[i] for own in tokens}) > 1)
            for own, score in zip(tokens, scores):
                context.clear()
                log_p = log_softmax(
                    context.decode(own[None], 0, np.ones(len(own), bool))[0].astype(float), axis=1
                )
                expected = np.mean([log_p[i - 1, own[i]] for i in range(shared, len(own))])
                assert score == pytest.approx(expected, abs=1e-4)


def test_flips_are_counted_both_ways() -> None:
    base, model = np.array([0, 1, 2, 3, 0, 1]), np.array([0, 2, 2, 1, 1, 3])
    base_right, right = np.array([1, 1, 0, 0, 0, 0], bool), np.array([1, 0, 0, 1, 0, 0], bool)
    found = flips(base, model, base_right, right)
    assert (found.right_to_wrong, found.wrong_to_right, found.wrong_to_wrong) == (1, 1, 2)


def test_draws_name_each_question_once() -> None:
    for draw in (draw_by_integers, draw_by_floats):
        assert sorted(draw(1000, 1000)) == list(range(1000))
        assert len(set(draw(1000, 400))) == 400
        assert draw(5, 9) == draw(5, 5)
    # 1791095845 is std::mt19937's first number of seed 1.
    assert draw_by_integers(1 << 16, 3)[0] == 1791095845 >> 16


def test_winogrande_is_read_as_llama_perplexity_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "questions.csv"
    file.write_text('0,"She said ""yes"", so _ won.",Ann,Bo Lee,2\n\n1,Then _ lost.,A,B,1\n')
    first, second = read_winogrande(file, file.read_bytes())
    assert first.texts == (b'She said ""yes"", so Ann won.', b'She said ""yes"", so Bo Lee won.')
    assert (first.until, first.right) == ((b'She said ""yes"", so Ann', b'She said ""yes"", so Bo Lee'), {1})
    assert second == Question(
        f"{file}:3", (b"Then A lost.", b"Then B lost."), frozenset([0]), (b"Then A", b"Then B")
    )


BAD = {
    "hellaswag": {
        "a\n1\nb\nc\nd\n": "5 lines: a HellaSwag file has 6 for each question",
        "a\n4\nb\nc\nd\ne\n": r":2: '4' is no index from 0 to 3",
        "0,The _ ate.,a,b,1\n" * 6: ":2: '0,The _ ate.,a,b,1' is no index",
        "": "empty",
    },
    "winogrande": {
        "the hen\n": ":1: a line of a Winogrande file has five fields",
        "0,The _ ate.,a,b,1\n1,The hen ate.,a,b,1\n": ":2: the sentence has no _",
        "0,The _ ate.,a,b,3\n": ":1: the right word is 1 or 2, not '3'",
        '0,"The _ ate.,a,b,1\n': ":1: a line of a Winogrande file has five fields",
        "\n\n": "has no questions",
    },
    "multiple_choice": {
        "": "4 bytes are said to follow byte 0",
        "\0\0\0\0": "has no questions",
        "a\n1\nb\nc\nd\ne\n": "bytes are said to follow byte 4, which the file has not",
        "\1\0\0\0\0\0\0\0\1\0\0\0t\2\0\0\0\1\0\0\0a\0\0\0\0": "question 1: .* follow",
        "\1\0\0\0\0\0\0\0\1\0\0\0t\xc8\0\0\0": "question 1: 200 answers; at most 100",
        "\1\0\0\0\0\0\0\0\1\0\0\0t" + 2 * ("\2\0\0\0\1\0\0\0a\1\0\0\0b" + 8 * "\0"):
            "question 1: no answer is marked",
    },
}  # fmt: skip


@pytest.mark.parametrize(("format_", "content"), [(name, content) for name in BAD for content in BAD[name]])
def test_a_file_of_another_format_is_refused_in_a_line(format_: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / "questions"
    with pytest.raises(TextError, match=BAD[format_][content]) as refusal:
        FORMATS[format_][0](file, content.encode("latin-1"))
    assert str(refusal.value).startswith(str(file))
    assert "\n" not in str(refusal.value)


def test_too_long_a_question_and_wrong_calls_are_refused(
    models: list[Path], files: dict[str, Path], tmp_path: Path
) -> None:
    file = tmp_path / "long"
    file.write_text("\n".join(["the " * 3000, "0", "a", "b", "c", "d"]))
    with pytest.raises(TextError, match=r"long:1: takes .* tokens; a question has at most 2,048"):
        measure_accuracy(models[0], [], {"hellaswag": file}, threads=1)
    with pytest.raises(ConfigError, match="given twice"):
        measure_accuracy(models[0], [models[0]], files)
    with pytest.raises(
        ConfigError, match="expected a file for one of hellaswag, winogrande, multiple_choice"
    ):
        measure_accuracy(models[0], [], {"mmlu": file})


@pytest.mark.parametrize("format_", WRITE)
def test_the_hash_is_of_what_was_read_from_a_pipe_too(
    models: list[Path], files: dict[str, Path], format_: str
) -> None:
    data = files[format_].read_bytes()
    read, write = os.pipe()
    try:
        assert os.write(write, data) == len(data)
        os.close(write)
        report = measure_accuracy(models[0], [], {format_: f"/dev/fd/{read}"}, n_questions=2, threads=1)
    finally:
        os.close(read)
    assert report.files[0].sha256 == hashlib.sha256(data).hexdigest()


def test_the_command_shows_flips_and_p(models: list[Path], files: dict[str, Path]) -> None:
    arguments = ["accuracy", *models, "--hellaswag", files["hellaswag"], "--threads", "1"]
    shown = run(*map(str, arguments))
    assert shown.returncode == 0, shown.stderr
    assert "right to wrong" in shown.stdout
    assert "McNemar's p" in shown.stdout
    result = json.loads(run(*map(str, arguments), "--json").stdout)
    (file,) = result["files"]
    (own,) = file["candidates"]
    base_right = [chosen in right for chosen, right in zip(file["base"]["chosen"], file["right"])]
    right = [chosen in right for chosen, right in zip(own["chosen"], file["right"])]
    assert own["accuracy"] == pytest.approx(np.mean(right))
    assert own["right_to_wrong"] - own["wrong_to_right"] == sum(base_right) - sum(right)
    refused = run("accuracy", str(models[0]))
    assert refused.returncode == 2
    assert "give --hellaswag, --winogrande or --multiple-choice" in refused.stderr
