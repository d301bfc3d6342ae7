"""A draft model: a smaller one, or the target itself in fewer bits.

The target in fewer bits need not read what its target has read: it takes its keys and values over. They are
better than its own, and copied in less time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.draft import Drafted
from pyquant.generation.speculative.policies.certainty import Certainty


class ModelDraft:
    """Proposes what a model generates. It reads tokens only when it is asked for one.

    The session is of its model, with one sequence; it draws as its target does. Of all that is verified it
    takes keys and values of `giver`, the target's session; without one it reads all tokens itself.
    """

    def __init__(self, session: Session, sampling: Sampling, giver: Session | None = None) -> None:
        self._session, self._for_kernel, self._giver = session, sampling.for_kernel, giver
        self.draws = sampling.temperature > 0
        self.takes = giver is not None
        self.begin()

    def begin(self) -> None:
        """Forget the completion before."""
        self._session.roll_back(0, 0)
        self._n_taken, self._to_take = 0, True
        self.seconds = self.sure_seconds = 0.0

    def propose(
        self, tokens: Sequence[int], mask: NDArray[np.int32] | None, uniform: float
    ) -> Drafted | None:
        """Propose a token; None where the context has no room for the completion, or the mask allows none."""
        session = self._session
        if len(tokens) > session.n_ctx:
            return None
        begin = time.perf_counter()
        if self._giver is not None and self._to_take:
            n_verified = min(int(self._giver.lengths[0]), len(tokens) - 1)
            session.take(self._giver, self._n_taken, n_verified)
            self._n_taken, self._to_take = n_verified, False
        n_read = int(session.lengths[0])
        # A copy: the next token overwrites llama.cpp's buffer, and the verification needs all of a draft.
        logits = session.extend(0, np.array(tokens[n_read:], np.int32))
        token, log_p, *sure, sure_seconds = _core.draw_sure(logits, mask, uniform, **self._for_kernel)
        self.seconds += time.perf_counter() - begin - sure_seconds
        self.sure_seconds += sure_seconds
        if not np.isfinite(log_p):
            raise ModelFileError(f"{session.model.path}: its logits are not numbers")
        return Drafted(token, logits, Certainty(*sure)) if token >= 0 else None

    def keep(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self._session.roll_back(0, length)
        self._n_taken, self._to_take = min(self._n_taken, length), True
