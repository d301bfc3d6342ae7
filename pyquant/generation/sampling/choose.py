"""Choose the next tokens of completions, with or without a grammar.

There are two exact ways to keep to a grammar, and both give the same distribution. Where nothing but the
temperature changes probabilities, a token is drawn freely first, and only if the grammar refuses it a mask is
made and another token drawn, by a random number of its own. Where top-k, top-p or min-p leave tokens out, the
mask has to come before them, for what is left depends on it: then masks are made in a thread of their own
while the model runs.

With engine lr, drawing a token and taking it in the grammar is one call of a kernel: after a forward pass the
processor's caches are empty, and each call of Python's costs microseconds. With top-k it asks the grammar
about the most likely tokens, and needs no mask where few of those are refused.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.generation.grammar.engine import Compiled, State, kernel_state
from pyquant.generation.sampling.penalties import Penalties
from pyquant.generation.sampling.result import Sample, Times
from pyquant.generation.sampling.sampling import Drawn, Sampling, uniform
from pyquant.generation.sampling.side_thread import SideThread


@dataclass
class Text:
    """A completion that is being generated, and where it is in its grammar."""

    sample: Sample
    state: State | None = None
    kernel: _core.GrammarState | None = None  # where that draws: then tokens are taken as they are drawn
    must_end: bool = False  # the grammar lets nothing follow what was taken

    def take(self, token: int) -> None:
        """Take a token in the grammar, if it was not taken as it was drawn."""
        if self.kernel is None and self.state is not None:
            self.state.advance(token)
            self.must_end = self.state.must_end


class Chooser:
    """Draws tokens; a context manager.

    Parameters
    ----------
    sampling, measure_mask, times
        As for `generate`.
    grammars
        Of each prompt, for one vocabulary; None: all tokens may come.
    n_completions
        Most completions at a time.
    penalize
        What changes logits, and the tokens of each prompt, which it counts as well.
    """

    def __init__(
        self,
        sampling: Sampling,
        grammars: Sequence[Compiled] | None,
        n_completions: int,
        *,
        penalize: tuple[Penalties, Sequence[NDArray[np.int32]]] | None = None,
        measure_mask: bool = False,
        times: Times | None = None,
    ) -> None:
        self._times = times or Times()
        self._sampling, self._grammars, self._penalize = sampling, grammars, penalize
        self.measures = measure_mask and grammars is not None
        self._truncates = grammars is not None and sampling.truncates and sampling.temperature > 0
        # Without top-k, top-p needs the sum of all that a mask leaves.
        self._kept = (
            grammars is not None
            and not measure_mask
            and (sampling.top_k > 0 or not sampling.truncates)
            and all(kernel_state(grammar.start()) for grammar in grammars)
        )
        masks_first = grammars is not None and not self._kept and (self._truncates or measure_mask)
        self._masks = np.empty((n_completions, grammars[0].n_words if grammars else 0), np.int32)
        self._beside = SideThread(self._make_masks) if masks_first else None

    def begin(self, sample: Sample) -> Text:
        """Return a completion without tokens."""
        state = self._grammars[sample.prompt].start() if self._grammars else None
        return Text(sample, state, kernel_state(state) if self._kept and state else None)

    def prepare(self, texts: Sequence[Text]) -> None:
        """Begin to make the masks of what will be chosen next, if they are needed.

        A mask depends on the tokens so far alone, so it can be made while the model runs.
        """
        if self._beside is not None:
            self._beside.begin(list(texts))

    def choose(self, texts: Sequence[Text], logits: NDArray[np.float32]) -> Drawn:
        """Draw the next token of each completion; -1 where the grammar allows none.

        Parameters
        ----------
        completions
            Those that `prepare` was called with.
        logits : (n_completions, n_vocab) float32
        """
        if self._penalize is not None:
            logits = self._penalized(texts, logits, *self._penalize)
        if self._kept:
            return self._choose_kept(texts, logits)
        masks = None
        if self._beside is not None:
            self._beside.finish()
            masks = self._masks[: len(texts)]
        begin = time.perf_counter()
        drawn = self._sampling.draw(
            logits, self._numbers(texts, attempt=0), masks if self._truncates else None
        )
        self._times.sampling += time.perf_counter() - begin
        if self._truncates or self._grammars is None:
            return drawn
        refused = [i for i, text in enumerate(texts) if not _allows(text, int(drawn.tokens[i]))]
        if masks is not None:
            masked = self._again(texts, logits, drawn, list(range(len(texts))), masks)
            drawn.allowed[:] = masked.allowed
            drawn.tokens[refused], drawn.log_p[refused] = masked.tokens[refused], masked.log_p[refused]
        elif refused:
            again = [texts[i] for i in refused]
            self._make_masks(again)
            masked = self._again(again, logits, drawn, refused, self._masks[: len(again)])
            drawn.tokens[refused], drawn.log_p[refused] = masked.tokens, masked.log_p
            drawn.allowed[refused] = masked.allowed
        return drawn

    def _penalized(
        self,
        texts: Sequence[Text],
        logits: NDArray[np.float32],
        penalties: Penalties,
        prompts: Sequence[NDArray[np.int32]],
    ) -> NDArray[np.float32]:
        """(n_completions, n_vocab) float32: a copy of the logits, changed."""
        changed = logits.copy()
        for row, text in zip(changed, texts):
            penalties.apply(row, [*prompts[text.sample.prompt].tolist(), *text.sample.tokens])
        return changed

    def _choose_kept(self, texts: Sequence[Text], logits: NDArray[np.float32]) -> Drawn:
        begin = time.perf_counter()
        # The kernel makes the random numbers: to call for one takes microseconds where caches are empty.
        places = np.array([(self._sampling.seed, *_place(text)) for text in texts], np.uint64)
        tokens, log_p, allowed, sums, ended, seconds = _core.draw_kept(
            logits,
            [text.kernel for text in texts if text.kernel is not None],
            places,
            **self._sampling.for_kernel,
        )
        for text, must_end in zip(texts, ended):
            text.must_end = must_end
        self._times.mask += seconds
        self._times.sampling += time.perf_counter() - begin - seconds
        return Drawn(tokens, log_p, allowed, sums)

    def _make_masks(self, texts: Sequence[Text]) -> None:
        begin = time.perf_counter()
        for text, words in zip(texts, self._masks):
            assert text.state is not None
            text.state.mask(words)
        self._times.mask += time.perf_counter() - begin

    def _again(
        self, texts: Sequence[Text], logits: NDArray[np.float32], drawn: Drawn, rows: list[int],
        masks: NDArray[np.int32],
    ) -> Drawn:  # fmt: skip
        begin = time.perf_counter()
        numbers = self._numbers(texts, attempt=1)
        masked = self._sampling.draw_again(logits, drawn, np.array(rows, np.int64), numbers, masks)
        self._times.sampling += time.perf_counter() - begin
        return masked

    def _numbers(self, texts: Sequence[Text], *, attempt: int) -> NDArray[np.float64]:
        return np.array([uniform(self._sampling.seed, *_place(text), attempt) for text in texts])

    def __enter__(self) -> Chooser:
        return self

    def __exit__(self, *_: object) -> None:
        if self._beside is not None:
            self._beside.close()


def _place(text: Text) -> tuple[int, int]:
    sample = text.sample
    return sample.prompt << 32 | sample.number, len(sample.tokens)


def _allows(text: Text, token: int) -> bool:
    return text.state is None or text.state.allows(token)
