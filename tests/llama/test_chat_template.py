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
