"""Prompts, chat templates, models that generate, and what is kept of texts, taken as far as they go."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from pyquant.generation.grammar.engines import compile_for
from pyquant.generation.grammar.grammar import read_grammar
from pyquant.generation.grammar.lr_engine import Lr
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt, read_prompts
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.policies import read_policy
from pyquant.generation.speculative.replay.search import read_found
from pyquant.generation.structured.series import measure_series
from pyquant.llama.chat_template import Template, read_template
from pyquant.llama.model import Model
from pyquant.machine.caches import CACHE
from tests.trial.grammars import follow
from tests.trial.mutations import Use
from tests.trial.sample_texts import JINJA
from tests.trial.samples import PAIR, SERIES, Samples

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "hen"}, {"role": "user", "content": [{"type": "text", "text": "the rain"}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "tin"}, {"role": "user", "content": "é <b>"},
]  # fmt: skip


@cache  # in the process that runs the cases
def _model(path: Path) -> Model:
    return Model(path)


def asked(samples: Samples) -> Use:
    """Prompts, and their tokens: of conversations by a template that looks at all of them."""

    def use(path: Path) -> None:
        for prompt in read_prompts(path):
            chat = prompt if prompt.text is not None else prompt.chat(template=Template(JINJA, path))
            chat.tokens(_model(samples.model_gguf))

    return use


def templated(samples: Samples) -> Use:
    """A chat template, and what it makes of a conversation with tools."""

    def use(path: Path) -> None:
        prompt = Prompt(messages=TALK, tools=TOOLS, template=read_template(path))
        prompt.tokens(_model(samples.model_gguf))

    return use


def generated(samples: Samples) -> Use:
    """A model that answers by its own template, within a grammar."""
    grammar = read_grammar(samples.grammar_gbnf)

    def use(path: Path) -> None:
        with Model(path) as model:
            compiled = compile_for(model.vocabulary, grammar)
            plan = make_plan(model, [Prompt(messages=TALK)], max_tokens=3, n_ctx=256)
            for sample in generate(model, plan, Sampling(0.8, seed=1), grammar=compiled, threads=1):
                json.dumps(sample.to_json(), allow_nan=False)

    return use


def read_search(path: Path) -> None:
    """Policies that a search found."""
    for policy in read_found(path, PAIR):
        read_policy(policy)


def measured_on(samples: Samples) -> Use:
    """Completions that a run which was stopped has written, checked, and the missing ones."""

    def use(path: Path) -> None:
        measure_series(samples.model_gguf, file=path, threads=1, **SERIES)

    return use


def cached(samples: Samples) -> Use:
    """A grammar that is prepared, in the cache."""

    def use(path: Path) -> None:
        os.environ[CACHE] = str(path.parent)
        vocabulary = _model(samples.model_gguf).vocabulary
        follow(Lr(vocabulary).compile(read_grammar(samples.grammar_lark)))

    return use


def imported(samples: Samples) -> Use:
    """A grammar that a sound one imports."""
    importing = samples.folder / "importing.lark"

    def use(path: Path) -> None:
        os.environ[CACHE] = ""
        grammar = read_grammar(Path(shutil.copy(importing, path.with_name(f"damaged-{importing.name}"))))
        follow(Lr(_model(samples.model_gguf).vocabulary).compile(grammar))

    return use
