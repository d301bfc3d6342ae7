"""Ask a model questions: it reads what the answers of a question share once, and then all answers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.evaluate.questions.question import Question, Tokenized, tokenized
from pyquant.llama.chunks import BATCH
from pyquant.llama.model import Context, Model

Advance = Callable[[], None]


def ask(
    model: Model,
    questions: Sequence[Question],
    *,
    threads: int | None = None,
    advance: Advance = lambda: None,
) -> list[list[float]]:
    """Score the answers to questions. A question's scores do not depend on which others are asked.

    Parameters
    ----------
    questions
        At least one.
    threads
        None: all cores.
    advance
        Called after each question.

    Returns
    -------
    scores : for each question, for each answer
        Mean log-probability of the answer's scored tokens, in nats.

    Raises
    ------
    ModelFileError, TextError
    """
    asked = [tokenized(question, model.vocabulary) for question in questions]
    n_answers = max(len(question.answers) for question in asked)
    n_tokens = max(question.n_tokens for question in asked)
    # A model with states has no views, but sequences with room of their own.
    n_seq = n_answers if model.has_states else 1
    scores = []
    with model.context(
        n_ctx=n_tokens, n_seq=n_seq, n_views=n_answers - 1, n_batch=BATCH, threads=threads
    ) as context:
        for question in asked:
            scores.append(_scores(context, question))
            if not np.isfinite(scores[-1]).all():
                raise ModelFileError(f"{model.path}: not finite logits at {question.question.place}")
            advance()
    return scores


def _scores(context: Context, question: Tokenized) -> list[float]:
    context.clear()
    answers, shared = question.answers, question.shared
    losses: dict[tuple[int, int], float] = {}  # by answer, and the position of the token that is predicted
    sources = {(i, answer.first): answer.source for i, answer in enumerate(answers)}
    if shared:
        positions = np.arange(shared)
        logits = context.run(
            answers[0].tokens[:shared], positions, np.zeros(shared, int), positions == shared - 1
        )
        first = [i for i, answer in enumerate(answers) if answer.source == (i, shared - 1)]
        targets = np.array([answers[i].tokens[shared] for i in first], np.int32)
        rows = np.zeros(len(first), int)
        losses |= zip(((i, shared) for i in first), _losses(context, logits[rows], targets))
        for i in range(1, len(answers)):
            context.copy(0, i)
    wanted = {
        (i, position): sources.get((i, position), (i, position - 1))
        for i, answer in enumerate(answers)
        for position in range(answer.first, answer.end)
        if (i, position) not in losses
    }
    lengths = [len(answer.tokens) - shared for answer in answers]
    sequences = np.repeat(np.arange(len(answers)), lengths)
    positions = np.concatenate([shared + np.arange(length) for length in lengths])
    places = list(zip(sequences.tolist(), positions.tolist()))
    is_source = np.array([place in set(wanted.values()) for place in places])
    logits = context.run(
        np.concatenate([answer.tokens[shared:] for answer in answers]), positions, sequences, is_source
    )
    if wanted:
        row = {
            place: i for i, place in enumerate(place for place, is_one in zip(places, is_source) if is_one)
        }
        targets = np.array([answers[i].tokens[position] for i, position in wanted], np.int32)
        chosen = logits[[row[source] for source in wanted.values()]]
        losses |= zip(wanted, _losses(context, chosen, targets))
    return [
        -float(np.mean([losses[i, position] for position in range(answer.first, answer.end)]))
        for i, answer in enumerate(answers)
    ]


def _losses(context: Context, logits: NDArray[np.float32], targets: NDArray[np.int32]) -> list[float]:
    return _core.negative_log_likelihood(logits, targets, context.n_threads).tolist()
