"""Prompts: texts, conversations by a model's template, and files of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyquant import data
from pyquant.errors import ModelFileError, TextError
from pyquant.generation.sampling.prompt import Prompt, read_prompts, render
from pyquant.llama.chat_template import Template
from pyquant.llama.model import Model

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(template: str | None) -> SimpleNamespace:
    """Give what `render` needs of a model."""
    vocabulary = SimpleNamespace(begin_and_end=lambda: ("<s>", "</s>"))
    return SimpleNamespace(path=Path("m.gguf"), chat_template=lambda _=None: template, vocabulary=vocabulary)


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


def test_ends_of_lines_in_strings_end_no_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    text = "a\u2028b\u2029c\u0085d"
    path.write_bytes(b"\xef\xbb\xbf" + f'{{"prompt": "{text}"}}\r\n{{"prompt": "e"}}'.encode())
    assert [prompt.text for prompt in read_prompts(path)] == [text, "e"]


@pytest.mark.parametrize(
    "line", ['{"prompt": "a\\ud800"}', '{"messages": [{"role": "user", "content": "\\udc00"}]}']
)
def test_halves_of_surrogate_pairs_are_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(line)
    (prompt,) = read_prompts(path)
    with (
        Model(data.model_path()) as model,
        pytest.raises(TextError, match=r"prompts\.jsonl:1: character \d+ is no Unicode"),
    ):
        replace(prompt, template=Template("{{ messages[0].content }}", path)).tokens(model)


def test_tools_and_parts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    parts = '[{"type": "text", "text": "one"}]'
    path.write_text(f'{{"messages": [{{"role": "user", "content": {parts}}}], "tools": [{{"a": 1}}]}}')
    (prompt,) = read_prompts(path)
    assert prompt.tools == [{"a": 1}]
    assert prompt.messages[0]["content"] == [{"type": "text", "text": "one"}]


def test_a_system_prompt_comes_first_where_there_is_none() -> None:
    asked = Prompt("Hello").chat(system="Be short.")
    assert [message["role"] for message in asked.messages] == ["system", "user"]
    own = Prompt(messages=[{"role": "system", "content": "Own."}, {"role": "user", "content": "x"}])
    assert own.chat(system="Be short.").messages == own.messages


@pytest.mark.parametrize(
    "line",
    [
        '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": [{"role": "user", "content": "x"}], "tools": 1}',
        '{"prompt": "x", "tools": []}',
        "{",
        "[]",
        '{"prompt": 1}',
        '{"messages": []}',
        '{"messages": [{"role": 1}]}',
        '{"prompt": "x", "name": "two\\nlines"}',
        '{"prompt": "x", "name": "\\ud800"}',
        f'{{"messages": [{{"role": "user", "content": "x", "more": {10**400}}}]}}',
        "{}",
        "[" * 10_000,
    ],
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
