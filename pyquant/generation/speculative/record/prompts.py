"""Prompts for drafts that need no file: code, prose and chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from pyquant.data import excerpts
from pyquant.data.chat import QUESTIONS
from pyquant.errors import ConfigError
from pyquant.llama.model import Model

SORTS = ("code", "prose", "chat")
CHARACTERS = 16  # of a text for each token that is wanted: more than a token has


def make_prompts(model: Model, sort: str, n_prompts: int, n_tokens: int) -> bytes:
    """Make prompts of a sort, as `read_prompts` reads them.

    Code and prose are beginnings of the standard library's modules and of their docstrings, cut after so many
    tokens of the model. Chat is what users ask; it is as long as it is.

    Parameters
    ----------
    model
        Whose tokens are counted.
    sort
        "code", "prose" or "chat".
    n_prompts
    n_tokens
        Tokens of a prompt of code or prose. Cut into tokens again, it may have one more or less.

    Raises
    ------
    ConfigError
        There are not so many prompts.
    """
    texts = list(QUESTIONS[:n_prompts] if sort == "chat" else islice(_cut(model, sort, n_tokens), n_prompts))
    if len(texts) < n_prompts:
        raise ConfigError(f"prompts: there are {len(texts)} of {sort}, not {n_prompts}")
    lines = [json.dumps({"prompt": text, "name": f"{sort} {n}"}) for n, text in enumerate(texts, start=1)]
    return "".join(f"{line}\n" for line in lines).encode()


def _cut(model: Model, sort: str, n_tokens: int) -> Iterator[str]:
    """Yield beginnings of so many tokens, each another one."""
    pieces, seen = model.vocabulary.pieces(), set()
    for text in excerpts.code() if sort == "code" else excerpts.prose():
        beginning = text.lstrip()[: CHARACTERS * n_tokens]
        tokens = model.vocabulary.tokenize(beginning.encode(), ends=False)[:n_tokens]
        cut = b"".join(pieces[token] for token in tokens.tolist()).decode(errors="ignore").rstrip()
        if len(tokens) == n_tokens and cut and cut not in seen:
            seen.add(cut)
            yield cut
