"""Conversations in the base's chat template: which tokens are scored, what they score, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ModelFileError, TextError
from pyquant.evaluate.bundled import bundled_texts, own_chat
from pyquant.evaluate.chat import Rendered, read_chat
from pyquant.evaluate.compare import compare_texts
from pyquant.files.text import NamedText, read_text
from pyquant.llama.model import Model
from tests.support.chat import TEMPLATE, ChatModel, turns, write_chat
from tests.support.command import run
from tests.support.models import F32
from tests.twins import kernels as reference

TWO = turns("the rain", "is in the inner air", "and then", "the sea")
ONE = turns("a hat", "is near")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("chat")
    return [ChatModel(seed=seed).write(folder / f"{seed}.gguf") for seed in (0, 1)]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return write_chat(tmp_path / "chat.jsonl", TWO, ONE)


def scored(model: Model, rendered: Rendered) -> str:
    tokens = rendered.passage.tokens[rendered.passage.scored]
    return b"".join(model.vocabulary.piece(int(token), special=True) for token in tokens).decode()


def test_answers_are_scored_with_the_token_that_ends_them(models: list[Path], chat: Path) -> None:
    with Model(models[0]) as model:
        two, one = read_chat(chat, "chat").rendered(model)
        assert two.text == "<s>Q: the rain\nA: is in the inner air</s>Q: and then\nA: the sea</s>"
        assert scored(model, two) == "is in the inner air</s>the sea</s>"
        assert scored(model, one) == "is near</s>"


def test_an_answer_begins_where_a_template_departs_from_asking_for_it(tmp_path: Path, chat: Path) -> None:
    thinking = TEMPLATE.replace("%}A: {% endif", "%}A: <think>{% endif")
    with Model(ChatModel(template=thinking).write(tmp_path / "m.gguf")) as model:
        _, one = read_chat(chat, "chat").rendered(model)
        assert scored(model, one) == "is near</s>"


def test_scores_are_those_of_each_conversation_alone(models: list[Path], chat: Path) -> None:
    (found,) = compare_texts(models[0], models[1:], [read_chat(chat, "talk")], threads=1)
    expected: list[np.ndarray] = []
    with Model(models[0]) as base, Model(models[1]) as other:
        for one in read_chat(chat, "talk").rendered(base):
            tokens, positions = one.passage.tokens, one.passage.positions
            wanted = np.zeros(len(tokens), bool)
            wanted[positions - 1] = True
            logits = []
            for model in (base, other):
                with model.context(n_ctx=len(tokens), threads=1) as context:
                    logits.append(context.decode(tokens[None], 0, wanted)[0].copy())
            expected.append(np.array(reference.compare_logits(*logits, tokens[positions])[:2]))
    nll, kld = np.concatenate(expected, axis=1)
    np.testing.assert_allclose(found.scores[1].kld, kld, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.scores[1].nll, nll, rtol=1e-5)
    assert (found.name, found.n_chunks, found.n_tokens) == ("talk", 2, len(kld))
    assert found.candidates[0].perplexity == pytest.approx(np.exp(nll.mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("{", r"chat\.jsonl:3: is no JSON"),
        ("[]", r"chat\.jsonl:3: expected an object$"),
        ('{"prompt": "a"}', r"chat\.jsonl:3: expected \"messages\""),
        (
            '{"messages": [{"role": "user", "content": "a"}]}',
            r"chat\.jsonl:3: no message has the role assist",
        ),
        ('{"messages": [{"role": "user"}]}', r"chat\.jsonl:3: message 1: content: expected a text"),
    ],
)
def test_a_broken_line_is_reason_to_refuse_the_file(chat: Path, broken: str, said: str) -> None:
    chat.write_text(chat.read_text() + broken + "\n")
    with pytest.raises(TextError, match=said):
        read_chat(chat, "chat")


def test_a_template_that_fails_is_named_with_the_line(models: list[Path], tmp_path: Path) -> None:
    tool = {"messages": [{"role": "tool", "content": "1"}, {"role": "assistant", "content": "a"}]}
    chat = read_chat(write_chat(tmp_path / "t.jsonl", ONE, tool), "chat")
    said = r"0\.gguf: its chat template fails for .*t\.jsonl:2: no tools here$"
    with Model(models[0]) as model, pytest.raises(ModelFileError, match=said):
        chat.rendered(model)


def test_a_base_without_a_template_is_refused_without_options_of_generate(
    generated, models: list[Path], chat: Path
) -> None:
    refused = run("compare", generated(F32), models[1], "--chat", chat)
    assert refused.returncode == 1
    assert "has no chat template, which conversations need" in refused.stderr
    assert "--chat-template" not in refused.stderr


def test_a_template_that_rewrites_what_was_said_is_refused(tmp_path: Path, chat: Path) -> None:
    last_alone = "{% for m in messages %}{{ loop.length }} {{ m.content }}{% endfor %}"
    with (
        Model(ChatModel(template=last_alone).write(tmp_path / "m.gguf")) as model,
        pytest.raises(TextError, match=r"chat\.jsonl:1: the chat template of .* before message 2 otherwise"),
    ):
        read_chat(chat, "chat").rendered(model)


def test_a_base_answers_questions(models: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyquant.evaluate.bundled.N_QUESTIONS", 3)
    monkeypatch.setattr("pyquant.evaluate.bundled.ANSWER_TOKENS", 8)
    with Model(models[0]) as model:
        chat, again = (own_chat(model, threads=1) for _ in range(2))
        assert chat == again
        assert [one.messages[0]["content"][:10] for one in chat.conversations] == [
            "Explain to", "Write a sh", "What are t",
        ]  # fmt: skip
        assert all(0 < one.passage.n_scored <= 40 for one in chat.rendered(model))


def test_results_say_what_their_texts_are(
    models: list[Path], chat: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyquant.evaluate.bundled.N_QUESTIONS", 2)
    monkeypatch.setattr("pyquant.evaluate.bundled.ANSWER_TOKENS", 8)
    texts = [NamedText("plain", read_text(text)), read_chat(chat, "talk"), *bundled_texts(models[0], 1)]
    found = compare_texts(models[0], models[1:], texts, n_ctx=64, n_chunks=1, threads=1)
    kinds = ["text", "chat", "bundled", "bundled", "bundled", "answers"]
    assert [one.to_json()["kind"] for one in found] == kinds


def test_each_text_is_a_group_of_rows(models: list[Path], chat: Path, text: Path) -> None:
    words = ["compare", *models, "--ctx", "64", "--chunks", "2", "--threads", "1"]
    done = run(*words, "--text", f"plain={text}", "--chat", f"talk={chat}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if " tokens in " in line] == ["plain", "talk"]
    assert max(map(len, lines)) <= 100
    assert sum(", noise floor " in line for line in lines) == 2
    twice = run(*words, "--text", text, "--text", text)
    assert twice.returncode != 0
    assert twice.stderr.splitlines()[-1].endswith("two texts have the name text.txt; name one by NAME=FILE")
    none = run(*words)
    assert none.stderr.splitlines() == ["pyquant: compare: give --text FILE, --chat FILE.jsonl or --bundled"]
