"""Prompts: texts, conversations by a model's template, and files of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pyquant import data
from pyquant.errors import ModelFileError, TextError
from pyquant.generation.sampling.prompt import Prompt, read_prompts, render
from pyquant.llama.model import Model

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(template: str | None) -> SimpleNamespace:
    """Give what `render` needs of a model."""
    vocabulary = SimpleNamespace(begin_and_end=lambda: ("<s>", "</s>"))
    return SimpleNamespace(path=Path("m.gguf"), chat_template=lambda: template, vocabulary=vocabulary)


def test_a_text_becomes_what_a_user_says() -> None:
    rendered = render(with_template(CHATML), Prompt("Hello").chat().messages, "prompt")
    assert rendered == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template"),
        ("{% if %}", "its chat template fails for p: Expected an expression"),
        ("{{ raise_exception('roles must alternate') }}", "fails for p: roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "fails for p: .*unsafe"),
    ],
)
def test_templates_that_fail_are_told(template: str | None, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        render(with_template(template), [{"role": "user", "content": "x"}], "p")


def test_prompts_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "one"}\n\n{"messages": [{"role": "user", "content": "two"}], "name": "second"}\n'
    )
    first, second = read_prompts(path)
    assert (first.text, first.name) == ("one", f"{path}:1")
    assert (second.messages[0]["content"], second.name) == ("two", "second")


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"prompt": 1}', '{"messages": []}', '{"messages": [{"role": 1}]}', "{}", "[" * 10_000],
)
def test_bad_lines_are_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n{line}\n')
    with pytest.raises(TextError, match=r"prompts\.jsonl:2: "):
        read_prompts(path)


def test_files_without_prompts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b"\n")
    with pytest.raises(TextError, match="has no prompts"):
        read_prompts(path)
    path.write_bytes(b"\xff")
    with pytest.raises(TextError, match="cannot be read"):
        read_prompts(path)


def test_an_empty_prompt_is_what_begins_a_completion() -> None:
    with Model(data.model_path()) as model:
        assert Prompt("").tokens(model).tolist() == [model.vocabulary.bos]
