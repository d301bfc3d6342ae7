"""Generate completions: many side by side, each of which depends on its seed and prompt alone.

A prompt is computed once, in a sequence of its own, which is copied for each completion. Completions that end
make room for the next ones. llama.cpp computes one row by other kernels than several, whose last bits differ;
so where completions are generated side by side no batch has less than two rows, and a completion does not
depend on those beside it; but for types whose rows llama.cpp interleaves: it computes groups of completions
by other kernels than what is left over (docs/generation/generate.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.errors import ConfigError, ModelFileError
from pyquant.files.utf8 import utf8
from pyquant.generation.grammar.engine import Compiled
from pyquant.generation.sampling.choose import Chooser, Text
from pyquant.generation.sampling.penalties import Penalties
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.result import CONTEXT, DEAD_END, END, LENGTH, Sample, Times
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.llama.model import Model

# Called with a sample after each of its tokens, and the bytes that the token added.
OnToken = Callable[[Sample, bytes], None]


@dataclass(frozen=True)
class Plan:
    """Completions that are to be generated.

    Attributes
    ----------
    n_shared
        First tokens that all prompts have in common, and that are computed by themselves, once. They decide
        in which portions a prompt is computed, and so its last bits.
    """

    prompts: list[NDArray[np.int32]]  # tokens of each
    names: list[str]
    n_samples: int  # completions for each prompt
    max_tokens: int  # of a completion
    n_parallel: int  # completions that are generated side by side
    n_ctx: int  # tokens that a prompt and its completion have room for
    n_shared: int = 0
    stops: tuple[bytes, ...] = ()  # strings before which a completion ends

    @property
    def n_completions(self) -> int:
        """All completions."""
        return len(self.prompts) * self.n_samples

    @property
    def n_sequences(self) -> int:
        """Sequences that have room: completions, and where there are several, the prompt's own."""
        return self.n_parallel + (self.n_completions > 1)


def make_plan(
    model: Model,
    prompts: Sequence[Prompt],
    *,
    n_samples: int = 1,
    max_tokens: int = 128,
    n_parallel: int | None = None,
    n_ctx: int | None = None,
    stops: Sequence[str] = (),
) -> Plan:
    """Decide how much room the completions need.

    Parameters
    ----------
    model, prompts, n_samples, max_tokens
        At least one prompt; completions for each, and tokens of a completion.
    n_parallel
        Completions side by side; None: 16, or as many as there are.
    n_ctx
        Tokens that a prompt and its completion have room for; None: the longest prompt and max_tokens, but no
        more than the model was trained with.
    stops
        Strings before which a completion ends.

    Raises
    ------
    ConfigError
        A number is outside of its range, a prompt leaves no room for a token, or a stop is empty.
    ModelFileError, TextError
        A prompt cannot be cut into tokens.
    """
    limits.SAMPLES.check("n", n_samples)
    limits.TOKENS.check("max-tokens", max_tokens)
    if n_parallel is not None:
        limits.PARALLEL.check("parallel", n_parallel)
    if "" in stops:
        raise ConfigError("stop: an empty text would end every text before it begins; give another one")
    tokens = [prompt.tokens(model) for prompt in prompts]
    longest = max(map(len, tokens))
    if n_ctx is None:
        n_ctx = min(longest + max_tokens, max(model.n_ctx_train, longest + 1))
    limits.CTX.check("ctx", max(n_ctx, int(limits.CTX.low)))
    for prompt, its_tokens in zip(prompts, tokens):
        if len(its_tokens) >= n_ctx:
            raise ConfigError(
                f"{prompt.name}: {len(its_tokens)} tokens leave no room in a context of {n_ctx}; "
                f"give a larger one"
            )
    n_parallel = min(n_parallel or 16, len(prompts) * n_samples)
    names, encoded = [prompt.name for prompt in prompts], tuple(utf8(stop, "stop") for stop in stops)
    return Plan(tokens, names, n_samples, max_tokens, n_parallel, n_ctx, stops=encoded)


def generate(
    model: Model,
    plan: Plan,
    sampling: Sampling,
    *,
    grammar: Compiled | Sequence[Compiled] | None = None,
    penalties: Penalties | None = None,
    measure_mask: bool = False,
    threads: int | None = None,
    on_token: OnToken | None = None,
    done: Collection[tuple[int, int]] = (),
    times: Times | None = None,
) -> Iterator[Sample]:
    """Generate the plan's completions, and yield each when it is complete.

    Parameters
    ----------
    model, plan, sampling
    grammar
        What completions keep to, compiled for the model's vocabulary: one, or one for each prompt. Where
        nothing may follow, a completion ends.
    penalties
        What changes logits before a token is drawn.
    measure_mask
        Keep for each token how much of the model's probability the grammar leaves: a mask is made for each.
    threads
        None: all cores.
    on_token
        Called as completions grow.
    done
        Completions that are not generated, as they are there already: index of the prompt, and number.
    times
        Gets the seconds that generating takes.

    Raises
    ------
    ConfigError, ModelFileError, GrammarError
        It cannot be run, or the grammar's engine gives up.
    """
    grammars = grammar if grammar is None or isinstance(grammar, Sequence) else [grammar] * len(plan.prompts)
    times = times or Times()
    if penalties is not None:
        penalties.check(model.n_vocab)
    penalize = (penalties, plan.prompts) if penalties is not None else None
    chooser = Chooser(
        sampling, grammars, plan.n_parallel, penalize=penalize, measure_mask=measure_mask, times=times
    )
    with Session(model, plan.n_sequences, plan.n_ctx, threads=threads) as session, chooser:
        writer = _Writer(session, plan, chooser, on_token, times)
        every = product(range(len(plan.prompts)), range(plan.n_samples))
        waiting = (text for text in every if text not in done)
        writing: dict[int, Text] = {}
        while True:
            for row in set(range(plan.n_parallel)) - set(writing):
                for prompt, number in waiting:
                    text = writer.begin(row, prompt, number)
                    if text.sample.finish:  # its first token ended it, and the row is free for another one
                        yield text.sample
                        continue
                    writing[row] = text
                    break
            if not writing:
                return
            writer.close_gaps(writing)
            for row in writer.step(writing):
                yield writing.pop(row).sample


class _Writer:
    """Generates tokens of completions, each in the row of its sequence."""

    def __init__(
        self, session: Session, plan: Plan, chooser: Chooser, on_token: OnToken | None, times: Times
    ) -> None:
        self._session, self._plan, self._chooser, self._on_token = session, plan, chooser, on_token
        self._times = times
        vocabulary = session.model.vocabulary
        self._ends = frozenset(vocabulary.end_tokens().tolist())
        self._pieces = vocabulary.pieces()
        self._prompt, self._after_prompt = -1, np.empty(0, np.float32)

    def begin(self, row: int, prompt: int, number: int) -> Text:
        """Let a row continue a prompt, by a first token."""
        session, alone = self._session, self._plan.n_completions == 1
        of_prompt = 0 if alone else self._plan.n_parallel
        if prompt != self._prompt:
            begin = time.perf_counter()
            tokens, n_shared = self._plan.prompts[prompt], self._plan.n_shared
            if n_shared and session.lengths[of_prompt] == 0:
                session.extend(of_prompt, tokens[:n_shared])
            session.roll_back(of_prompt, n_shared)
            self._after_prompt = session.extend(of_prompt, tokens[n_shared:])
            self._times.forward += time.perf_counter() - begin
            self._prompt = prompt
        if not alone:
            session.copy(of_prompt, row)
        text = self._chooser.begin(Sample(prompt, self._plan.names[prompt], number))
        self._chooser.prepare([text])
        self._choose([text], self._after_prompt[None])
        return text

    def close_gaps(self, writing: dict[int, Text]) -> None:
        """Move the last completions to free rows before them: llama.cpp parts a batch at each gap."""
        for row in range(len(writing)):
            if row not in writing:
                last = max(writing)
                self._session.copy(last, row)
                writing[row] = writing.pop(last)

    def step(self, writing: dict[int, Text]) -> list[int]:
        """Continue all completions by a token; return the rows of those that are complete."""
        rows = np.array(sorted(writing), np.int64)
        texts = [writing[row] for row in rows]
        tokens = np.array([text.sample.tokens[-1] for text in texts], np.int32)
        self._chooser.prepare(texts)
        begin = time.perf_counter()
        logits = self._session.step(*self._at_least_two(rows, tokens))[: len(rows)]
        self._times.forward += time.perf_counter() - begin
        self._choose(texts, logits)
        return [row for row in rows.tolist() if writing[row].sample.finish]

    def _at_least_two(
        self, rows: NDArray[np.int64], tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if len(rows) > 1 or self._plan.n_parallel == 1:
            return rows, tokens
        self._session.roll_back(1, 0)  # an idle row beside the first
        return np.append(rows, 1), np.append(tokens, tokens)

    def _choose(self, texts: list[Text], logits: NDArray[np.float32]) -> None:
        drawn = self._chooser.choose(texts, logits)
        if not np.isfinite(drawn.log_p).all():
            raise ModelFileError(f"{self._session.model.path}: its logits are not numbers")
        for i, text in enumerate(texts):
            self._take(text, int(drawn.tokens[i]), float(drawn.log_p[i]), float(drawn.allowed[i]))

    def _take(self, text: Text, token: int, log_p: float, allowed: float) -> None:
        sample = text.sample
        if token < 0:
            sample.finish = DEAD_END
            return
        sample.log_p.append(log_p)
        if self._chooser.measures:
            sample.allowed.append(allowed)
        if token in self._ends:
            sample.finish = END
            return
        sample.add(token, self._pieces[token], self._plan.stops)
        text.take(token)
        n_tokens = len(self._plan.prompts[sample.prompt]) + len(sample.tokens)
        if sample.finish:
            return
        if text.must_end:
            sample.finish = END
        elif len(sample.tokens) == self._plan.max_tokens:
            sample.finish = LENGTH
        elif n_tokens > self._plan.n_ctx:
            sample.finish = CONTEXT
        if self._on_token:
            self._on_token(sample, self._pieces[token])
