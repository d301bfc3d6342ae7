"""Chat templates: rendered as Transformers renders them, those in llama.cpp's tree among others."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyquant.errors import ModelFileError, TextError
from pyquant.llama.chat_template import Template, read_template, render
from tests.support.vendored import llama_files

TEMPLATES = llama_files("models/templates/*.jinja")
HELLO = [{"role": "user", "content": "Hé <b>"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "dé", "parameters": {"b": 1, "a": 2}}}]

# Templates that want what a plain conversation has not, in Transformers as well: tools, or `functions`.
NEED_MORE = {
    "CohereForAI-c4ai-command-r-plus-tool_use", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "fireworks-ai-llama-3-firefunction-v2",
}  # fmt: skip


def written(source: str, messages: Any = HELLO, **more: Any) -> str:
    vocabulary = SimpleNamespace(begin_and_end=lambda: ("<s>", "</s>"))
    model: Any = SimpleNamespace(
        path=Path("m.gguf"), vocabulary=vocabulary, chat_template=lambda name=None: None if name else source
    )
    return render(model, messages, "p", **more)


def test_all_templates_of_llama_cpp_are_written() -> None:
    """text-generation-webui issue 6675: 9 of 70 failed."""
    if not TEMPLATES:
        pytest.skip("skipped: no source of llama.cpp in build/vendor")
    assert len(TEMPLATES) >= 70
    for path in TEMPLATES:
        source = path.read_text(encoding="utf-8")
        if path.stem in NEED_MORE:
            with pytest.raises(ModelFileError, match=r"'NoneType' object is not iterable|undefined"):
                written(source)
        else:
            assert "Hé <b>" in written(source), path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ strftime_now('%Y') }}", str(datetime.now().year)),
        ("a{% generation %}{{ bos_token }}{% endgeneration %}b", "a<s>b"),
        ("{{ tools is none }} {{ documents is none }} {{ functions is defined }}", "True True False"),
        ("{{ messages[0].content | tojson }}", '"Hé <b>"'),
        ("{{ messages[0].content | tojson(ensure_ascii=True) }}", '"H\\u00e9 <b>"'),
        ("{{ {'b': 1, 'a': [2]} | tojson(separators=(',', ':'), sort_keys=True) }}", '{"a":[2],"b":1}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{% for i in [1, 2] %}{% break %}{% endfor %}x", "x"),
    ],
)
def test_templates_have_what_transformers_gives_them(source: str, expected: str) -> None:
    assert written(source) == expected


def test_tools_are_given_to_the_template_for_them() -> None:
    source = "{% for tool in tools %}{{ tool.function | tojson }}{% endfor %}"
    assert json.loads(written(source, tools=TOOLS)) == TOOLS[0]["function"]


PARTS = [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0]['content'] }}",
        "{% for part in messages[0].content %}{{ part.text }}{% endfor %}",
        "{{ messages[0].content + '' }}",
    ],
)
def test_parts_are_written_as_the_text_that_they_are(source: str) -> None:
    assert written(source, PARTS) == "one two"


def test_another_template_is_named_where_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("{{ messages[0].content }}!", encoding="utf-8-sig")
    assert written("unused", template=read_template(path)) == "Hé <b>!"
    with pytest.raises(ModelFileError, match=r"t\.jinja: its chat template fails for p: "):
        written("unused", template=Template("{% if %}", path))
    with pytest.raises(TextError, match=r"no\.jinja: No such file"):
        read_template(tmp_path / "no.jinja")


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for a in range(9999) %}{% set x = range(99999) | map('string') | list %}{% endfor %}",
        "{{ 'x' * 999999999 }}", "{{ 999999999 * [1] }}", "{{ 9 ** 999999999 }}",
        "{{ 9 ** 99 ** 99 ** 99 ** 99 }}", "{{ '%999999999d' % 1 }}",
        "{{ '%999999999d' | format(1) }}", "{{ '{:999999999}'.format(1) }}", "{{ 'x' | center(999999999) }}",
        "{{ 'x'.rjust(999999999) }}", "{{ [1] | batch(999999999, 0) | list }}", "{{ lipsum(n=999999) }}",
        "{{ {'x': 1} | tojson(indent=999999999) }}",
        "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xx') %}{% for a in range(60) %}{% set ns.x %}{{ ns.x + ns.x }}{% endset %}"
        "{% endfor %}",
    ],
)  # fmt: skip
def test_a_template_takes_no_time_or_memory_without_end(source: str) -> None:
    with pytest.raises(
        ModelFileError, match=r"its chat template fails for p: (takes|makes|pads|formats|'lip)"
    ):
        written(source)


def test_numbers_of_a_conversation_may_be_large() -> None:
    said = [{"role": "user", "content": "%99999999d {:99999999}"}, {"role": "tool", "content": 123456789}]
    source = "{% for m in messages %}{{ m.content | tojson }}{{ m.content | string | trim }}{% endfor %}"
    assert written(source, said) == '"%99999999d {:99999999}"%99999999d {:99999999}123456789123456789'
    assert written("{% for m in [] %}{% else %}x{% endfor %}{{ loop is defined }}") == "xFalse"
    assert written("{% for m in messages %}{{ loop.length }}{{ loop.last }}{% endfor %}") == "1True"
