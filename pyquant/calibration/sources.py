"""Texts that need no file: what every CPython carries, and what the model itself writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pyquant.calibration.kept_texts import ToWrite
from pyquant.calibration.prompts import FILES, OPENINGS, QUESTIONS
from pyquant.data import excerpts
from pyquant.errors import ModelFileError, TextError
from pyquant.llama.chat_template import render
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model

CHARACTERS = 8  # of a text that are taken for each token that is wanted; most tokens have fewer
SEED = 1  # of the texts that the model generates


@dataclass(frozen=True)
class BuiltIn:
    """A text that needs no file."""

    name: str  # what HESSIAN says in place of a file's name
    # Called with a model, the tokens of a chunk and the chunks that are wanted; returns these, or fewer if
    # there are no more, or what the model has to write for them.
    take: Callable[[Model, int, int], Chunks | ToWrite]


def chunks_hash(chunks: Chunks) -> str:
    """Hash tokens, as a text's hash would tell it from others."""
    return hashlib.sha256(np.ascontiguousarray(chunks.tokens, "<i4").tobytes()).hexdigest()


def _excerpts(model: Model, texts: Iterable[str], n_ctx: int, n_chunks: int, most: int) -> Chunks:
    """The beginnings of texts, `most` chunks of each at most."""
    chunks: list[np.ndarray] = []
    for text in texts:
        n_wanted = min(most, n_chunks - len(chunks))
        if n_wanted == 0:
            break
        tokens = model.vocabulary.tokenize(text[: CHARACTERS * n_ctx * n_wanted].encode(errors="replace"))
        n_whole = min(n_wanted, len(tokens) // n_ctx)
        chunks.extend(tokens[: n_whole * n_ctx].reshape(n_whole, n_ctx))
    if not chunks:
        raise TextError(
            f"no document of Python's library has {n_ctx} tokens; give a text or a smaller context"
        )
    return Chunks(np.stack(chunks))


def _code(model: Model, n_ctx: int, n_chunks: int) -> Chunks:
    return _excerpts(model, excerpts.code(), n_ctx, n_chunks, most=2)


def _prose(model: Model, n_ctx: int, n_chunks: int) -> Chunks:
    return _excerpts(model, excerpts.prose(), n_ctx, n_chunks, most=4)


def held_out_mixture(model: Model, n_ctx: int, n_chunks: int) -> Chunks:
    """Take code and prose that no default calibration has: documents that the mixture leaves out.

    Raises TextError: no document has so many tokens.
    """
    n_code = -(-n_chunks // 2)
    code = _excerpts(model, excerpts.code(held_out=True), n_ctx, n_code, most=2)
    prose = _excerpts(model, excerpts.prose(held_out=True), n_ctx, n_chunks - n_code, most=2)
    return Chunks(np.concatenate([code.tokens, prose.tokens]))


def _texts(model: Model, n_ctx: int, n_chunks: int) -> ToWrite:
    return _asked(model, OPENINGS, SEED)


def _programs(model: Model, n_ctx: int, n_chunks: int) -> ToWrite:
    return _asked(model, FILES, SEED + 1)


def _dialogues(model: Model, n_ctx: int, n_chunks: int) -> ToWrite:
    """Dialogues in the model's chat template, of which it generates all but the first question; else texts.

    A model that was trained to answer also knows what it is asked (Xu et al., *Magpie*, 2024).
    """
    if (marks := dialogue_marks(model)) is None:
        return _asked(model, OPENINGS, SEED + 2)
    opening, answer, question = marks
    return ToWrite(QUESTIONS, SEED, opening, answer, turns=(question, answer))


def _asked(model: Model, forms: tuple[str, ...], seed: int) -> ToWrite:
    """Texts, each begun for the model: alone it soon repeats itself."""
    bos = model.vocabulary.bos
    return ToWrite(forms, seed, before=[] if bos is None else [bos], after=[])


def dialogue_marks(model: Model) -> tuple[list[int], list[int], list[int]] | None:
    """Give what a model's chat template puts around turns.

    Returns: tokens before the user's first turn, between it and the answer, and between that and the user's
    next turn; None if the model has no template, or one that shows other than what was said.
    """
    turns = [f"<turn {i}>" for i in range(3)]
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns)]
    try:
        text = render(model, messages, "a dialogue")
    except ModelFileError:
        return None
    if any(text.count(turn) != 1 for turn in turns):
        return None
    before, _, rest = text.partition(turns[0])
    between, _, rest = rest.partition(turns[1])
    after, _, _ = rest.partition(turns[2])
    begin, answer, question = (
        model.vocabulary.tokenize(part.encode(), ends=False, special=True).tolist()
        for part in (before, between, after)
    )
    bos = model.vocabulary.bos
    if bos is not None and begin[:1] != [bos]:
        begin.insert(0, bos)
    return (begin, answer, question) if begin and answer and question else None


CODE = BuiltIn("code of Python's library", _code)
PROSE = BuiltIn("prose of Python's library", _prose)
TEXTS = BuiltIn("texts about words, by the model", _texts)
PROGRAMS = BuiltIn("programs and other files, by the model", _programs)
DIALOGUES = BuiltIn("dialogues about words, by the model", _dialogues)

# Texts that are calibrated on where nobody names one: the share of each in the chunks.
MIXTURE: Mapping[BuiltIn, float] = dict.fromkeys((CODE, PROSE, TEXTS, PROGRAMS, DIALOGUES), 0.2)
MIXTURE_CHUNKS = 128


def n_written(n_chunks: int) -> int:
    """Count the chunks that the model generates, for the mixture of n_chunks."""
    return round(n_chunks * sum(MIXTURE[text] for text in (TEXTS, PROGRAMS, DIALOGUES)))
