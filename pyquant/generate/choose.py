"""Choose the next tokens of texts, with or without a grammar.

There are two exact ways to keep to a grammar, and both give the same distribution. Where nothing but the
temperature changes probabilities, a token is drawn freely first, and only if the grammar refuses it a mask is
made and another token drawn, by a random number of its own. Where top-k, top-p or min-p leave tokens out, the
mask has to come before them, for what is left depends on it: then masks are made in a thread of their own
while the model runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from pyquant.generate.beside import Beside
from pyquant.generate.result import Sample, Times
from pyquant.generate.sampling import Drawn, Sampling, uniform
from pyquant.grammar.engine import Compiled, State


@dataclass
class Text:
    """A text that is being written, and where it is in its grammar."""

    sample: Sample
    state: State | None = None

    def advance(self, token: int) -> None:
        """Take a token in the grammar."""
        if self.state is not None:
            self.state.advance(token)

    @property
    def must_end(self) -> bool:
        """Say whether the grammar lets nothing follow."""
        return self.state is not None and self.state.must_end


class Chooser:
    """Draws tokens; a context manager.

    Parameters
    ----------
    sampling
    grammars
        Of each prompt, for one vocabulary; None: all tokens may come.
    n_texts
        Most texts at a time.
    measure_mask
        Make a mask for each token, to know how much probability it leaves.
    times
        Gets the seconds of masks and draws.
    """

    def __init__(
        self,
        sampling: Sampling,
        grammars: Sequence[Compiled] | None,
        n_texts: int,
        *,
        measure_mask: bool = False,
        times: Times | None = None,
    ) -> None:
        self._times = times or Times()
        self._sampling, self._grammars = sampling, grammars
        self.measures = measure_mask and grammars is not None
        self._truncates = grammars is not None and sampling.truncates and sampling.temperature > 0
        masks_first = grammars is not None and (self._truncates or measure_mask)
        self._masks = np.empty((n_texts, grammars[0].n_words if grammars else 0), np.int32)
        self._beside = Beside(self._make_masks) if masks_first else None

    def begin(self, sample: Sample) -> Text:
        """Return a text without tokens."""
        return Text(sample, self._grammars[sample.prompt].start() if self._grammars else None)

    def prepare(self, texts: Sequence[Text]) -> None:
        """Begin to make the masks of what will be chosen next, if they are needed.

        A mask depends on the tokens so far alone, so it can be made while the model runs.
        """
        if self._beside is not None:
            self._beside.begin(list(texts))

    def choose(self, texts: Sequence[Text], logits: NDArray[np.float32]) -> Drawn:
        """Draw the next token of each text; -1 where the grammar allows none.

        Parameters
        ----------
        texts
            Those that `prepare` was called with.
        logits : (n_texts, n_vocab) float32

        Raises
        ------
        GrammarError
        """
        masks = self._made_masks(len(texts))
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

    def _made_masks(self, n_texts: int) -> NDArray[np.int32] | None:
        if self._beside is None:
            return None
        self._beside.finish()
        return self._masks[:n_texts]

    def _make_masks(self, texts: Sequence[Text]) -> None:
        begin = time.perf_counter()
        for text, words in zip(texts, self._masks):
            assert text.state is not None
            text.state.mask(words)
        self._times.mask += time.perf_counter() - begin

    def _again(
        self,
        texts: Sequence[Text],
        logits: NDArray[np.float32],
        drawn: Drawn,
        rows: list[int],
        masks: NDArray[np.int32],
    ) -> Drawn:
        begin = time.perf_counter()
        numbers = self._numbers(texts, attempt=1)
        masked = self._sampling.draw_again(logits, drawn, np.array(rows, np.int64), numbers, masks)
        self._times.sampling += time.perf_counter() - begin
        return masked

    def _numbers(self, texts: Sequence[Text], *, attempt: int) -> NDArray[np.float64]:
        samples = [text.sample for text in texts]
        seed = self._sampling.seed
        return np.array([uniform(seed, s.prompt << 32 | s.number, len(s.tokens), attempt) for s in samples])

    def __enter__(self) -> Chooser:
        return self

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beside is not None:
            self._beside.close()


def _allows(text: Text, token: int) -> bool:
    return text.state is None or text.state.allows(token)
