"""Ask a model questions, in the batches of llama-perplexity, so that scores are its to the last bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.evaluate.questions.question import Question, Tokenized, tokenized
from pyquant.llama.chunks import BATCH
from pyquant.llama.context import Context
from pyquant.llama.model import Model

SEQUENCES = 4  # of a batch; llama-perplexity's default
# Tokens of a batch: fewer would go through attention of pyquant's own (csrc/generation/few), which sums in
# F32 what llama-perplexity sums in F16.
FEWEST = 33
Advance = Callable[[int], None]
Place = tuple[int, int, int]  # number of a question in its batch, answer, and position


def ask(
    model: Model,
    questions: Sequence[Question],
    *,
    threads: int | None = None,
    advance: Advance = lambda n: None,
) -> list[list[float]]:
    """Score the answers to questions.

    Parameters
    ----------
    questions
        At least one.
    threads
        None: all cores.
    advance
        Called with the number of questions that were answered.

    Returns
    -------
    scores : for each question, for each answer
        Mean log-probability of the answer's scored tokens, in nats.

    Raises
    ------
    ModelFileError, TextError
    """
    asked = [tokenized(question, model.vocabulary) for question in questions]
    n_seq = max(SEQUENCES, *(len(question.answers) for question in asked))
    groups = list(_groups(asked, n_seq))
    scores: list[list[float]] = []
    # A model with states has no tokens in several sequences: there each answer is read from its beginning.
    apart = model.has_states
    lengths = (
        [len(answer.tokens) for question in asked for answer in question.answers]
        if apart
        else [sum(question.n_tokens for question in group) for group in groups]
    )
    with model.context(
        n_ctx=max(FEWEST, *lengths),
        n_seq=n_seq + 1 if apart else 1,
        n_views=n_seq,
        n_batch=BATCH * (n_seq if apart else 1),
        threads=threads,
    ) as context:
        for group in groups:
            found = _scores(context, group, apart)
            for question, own in zip(group, found):
                if not np.isfinite(own).all():
                    raise ModelFileError(f"{model.path}: not finite logits at {question.question.place}")
            scores += found
            advance(len(group))
    return scores


def _groups(questions: Sequence[Tokenized], n_seq: int) -> Iterator[list[Tokenized]]:
    """Put as many questions together as sequences and tokens of a batch allow."""
    group: list[Tokenized] = []
    for question in questions:
        more = [*group, question]
        n_answers = sum(len(one.answers) for one in more)
        if group and (n_answers > n_seq or sum(one.n_tokens for one in more) > BATCH):
            yield group
            more = [question]
        group = more
    yield group


def _scores(context: Context, questions: Sequence[Tokenized], apart: bool) -> list[list[float]]:
    """Run the model over questions at once, of which each answer is a sequence."""
    batch = _Batch()
    for question in questions:
        batch.add(question, apart)
    batch.fill(FEWEST)
    context.clear()
    logits = context.run(
        np.array(batch.tokens, np.int32),
        np.array(batch.positions),
        np.array(batch.sequences),
        np.array([place in batch.sources for place in batch.places]),
        np.array(batch.counts),
    )
    row = {place: i for i, place in enumerate(place for place in batch.places if place in batch.sources)}
    rows, targets = [row[source] for source in batch.predicted_by], np.array(batch.targets, np.int32)
    losses = _core.negative_log_likelihood(logits[rows], targets, context.n_threads)
    means, begin = [], 0
    for n in batch.lengths:
        means.append(-float(losses[begin : begin + n].mean()))
        begin += n
    scores = iter(means)
    return [[next(scores) for _ in question.answers] for question in questions]


class _Batch:
    """Tokens that are computed together, and those that are scored.

    tokens, positions, counts, sequences: as `Context.run` takes them. places: where each token is.
    targets, predicted_by: tokens that are scored, answer by answer, and the places whose logits predict them.
    lengths: how many tokens of each answer are scored.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.counts: list[int] = []
        self.sequences: list[int] = []
        self.places: list[Place] = []
        self.targets: list[int] = []
        self.predicted_by: list[Place] = []
        self.lengths: list[int] = []
        self.sources: set[Place] = set()
        self._n_questions = self._n_answers = 0

    def add(self, question: Tokenized, apart: bool) -> None:
        """Add a question; apart: whether each answer has what they share for itself."""
        number, first = self._n_questions, self._n_answers
        shared = 0 if apart else question.shared
        everyone = range(first, first + len(question.answers))
        self._append(number, 0, question.answers[0].tokens[:shared].tolist(), 0, list(everyone))
        for i, answer in enumerate(question.answers):
            self._append(number, i, answer.tokens[shared:].tolist(), shared, [first + i])
            sources = [answer.source, *((i, position) for position in range(answer.first, answer.end - 1))]
            self.predicted_by += [(number, i if at >= shared else 0, at) for i, at in sources]
            self.targets += answer.tokens[answer.first : answer.end].tolist()
            self.lengths.append(len(sources))
        self.sources.update(self.predicted_by)
        self._n_questions += 1
        self._n_answers += len(question.answers)

    def fill(self, n_tokens: int) -> None:
        """Add a sequence that nobody asks for, up to so many tokens."""
        self._append(
            self._n_questions, 0, self.tokens[:1] * (n_tokens - len(self.tokens)), 0, [self._n_answers]
        )

    def _append(self, number: int, answer: int, tokens: list[int], begin: int, sequences: list[int]) -> None:
        n = len(tokens)
        self.tokens += tokens
        self.positions += range(begin, begin + n)
        self.counts += [len(sequences)] * n
        self.sequences += sequences * n
        self.places += [(number, answer, position) for position in range(begin, begin + n)]
