"""The bundled texts, and chat that the base itself writes: a sample of what models are used for."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.data.bundled_texts import BUNDLED_TEXTS
from pyquant.data.chat import QUESTIONS
from pyquant.evaluate.chat import ANSWERS, Chat, Conversation, json_bytes
from pyquant.evaluate.samples import Named
from pyquant.files.text import NamedText, read_text
from pyquant.llama.chat_template import render, rendered_tokens
from pyquant.llama.model import Model
from pyquant.llama.own_texts import OwnText, write_tokens

N_QUESTIONS = 16  # which are answered together
ANSWER_TOKENS = 96  # of an answer, at most
SEED = 46  # none that calibration writes with
OWN_CHAT = "own-chat"  # what results call these answers
NO_OWN_CHAT = f"%s: has no chat template, so there is no text {OWN_CHAT}"

logger = logging.getLogger(__name__)


def bundled_texts(base: Path, threads: int | None = None) -> list[Named]:
    """Read the bundled texts, and let a base with a chat template answer questions: chat `own-chat`.

    Raises ModelFileError.
    """
    texts: list[Named] = [NamedText(text.name, read_text(text.path), "bundled") for text in BUNDLED_TEXTS]
    with Model(base) as model:
        if model.chat_template() is None:
            logger.warning(NO_OWN_CHAT, base)
            return texts
        return [*texts, own_chat(model, threads)]


def own_chat(model: Model, threads: int | None = None) -> Chat:
    """Let a model answer questions, each token drawn by its probability. Raises ModelFileError."""
    questions = QUESTIONS[:N_QUESTIONS]
    asked = [[{"role": "user", "content": question}] for question in questions]
    prompts = [
        rendered_tokens(model, render(model, messages, question), question)
        for messages, question in zip(asked, questions)
    ]
    answers = _answers(model, prompts, threads)
    conversations = [
        Conversation([*messages, {"role": ANSWERS, "content": answer}], f"question {n}")
        for n, (messages, answer) in enumerate(zip(asked, answers), start=1)
        if answer
    ]
    sha256 = hashlib.sha256(json_bytes(conversations)).hexdigest()
    return Chat(OWN_CHAT, f"answers of {model.path}", sha256, conversations, "answers")


def _answers(model: Model, prompts: list[NDArray[np.int32]], threads: int | None) -> list[str]:
    ends = model.vocabulary.end_tokens()
    beginnings = iter(prompts)

    def begin(n_ends: int) -> list[int]:
        return next(beginnings).tolist() if n_ends == 0 else [int(ends[0])]

    n_tokens = max(map(len, prompts)) + ANSWER_TOKENS
    texts = [OwnText(SEED, number, begin) for number in range(len(prompts))]
    written = write_tokens(model, texts, n_tokens, threads=threads)
    pieces = model.vocabulary.pieces()
    answers = []
    for tokens, prompt in zip(written, prompts):
        answer = tokens[len(prompt) : len(prompt) + ANSWER_TOKENS]
        answer = answer[: int(np.append(np.isin(answer, ends), True).argmax())]
        answers.append(b"".join(pieces[token] for token in answer.tolist()).decode(errors="ignore").strip())
    return answers
