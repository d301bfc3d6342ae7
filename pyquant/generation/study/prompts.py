"""Prompts for drafts that need no file: code, prose and chat."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from pyquant.data import excerpts
from pyquant.data.chat import QUESTIONS
from pyquant.errors import ConfigError
from pyquant.generation.sampling.prompt import Prompt
from pyquant.llama.model import Model

Sort = Literal["code", "prose", "chat"]
CHARACTERS = 16  # of a text for each token that is wanted: more than a token has


def make_prompts(path: Path, sort: Sort, n_prompts: int, n_tokens: int) -> list[Prompt]:
    """Make prompts of a sort for a model.

    Code and prose are beginnings of the standard library's modules and of their docstrings, cut after so many
    of the model's tokens; cut into tokens again, one may have one more or less. Chat is what users ask, by
    the model's template if it has one; it is as long as it is.

    Raises ConfigError where there are not so many prompts, and ModelFileError.
    """
    with Model(path) as model:
        by_template = sort == "chat" and model.chat_template() is not None
        every = iter(QUESTIONS) if sort == "chat" else _cut(model, sort, n_tokens)
        texts = list(islice(every, n_prompts))
    if len(texts) < n_prompts:
        raise ConfigError(f"prompts: there are {len(texts)} of {sort}, not {n_prompts}")
    prompts = [Prompt(text, name=f"{sort} {n}") for n, text in enumerate(texts, start=1)]
    return [prompt.chat() for prompt in prompts] if by_template else prompts


def _cut(model: Model, sort: Sort, n_tokens: int) -> Iterator[str]:
    """Yield beginnings of so many tokens, each another one."""
    pieces, seen = model.vocabulary.pieces(), set()
    for text in excerpts.code() if sort == "code" else excerpts.prose():
        beginning = text.lstrip()[: CHARACTERS * n_tokens]
        tokens = model.vocabulary.tokenize(beginning.encode(), ends=False)[:n_tokens]
        cut = b"".join(pieces[token] for token in tokens.tolist()).decode(errors="ignore").rstrip()
        if len(tokens) == n_tokens and cut and cut not in seen:
            seen.add(cut)
            yield cut
