"""A draft that takes its target's keys and values anew for each token: what records are compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.sampling.session import Session
from pyquant.llama.model import Model


def taken_logits(
    target: Path, draft: Path, tokens: NDArray[np.int32], ends: range, n_own: int, *, at_once: bool
) -> NDArray[np.float32]:
    """Return what a draft says behind tokens[end] for each end, having read n_own tokens before by itself.

    at_once: whether it reads them in one pass, whose kernels are others than those for one token.
    """
    said = []
    with (
        Model(target) as model,
        Model(draft) as of_draft,
        Session(model, 1, len(tokens), n_views=1, threads=1) as giver,
        Session(of_draft, 1, len(tokens), n_views=1, threads=1) as session,
    ):
        giver.extend(0, tokens)
        for end in ends:
            n_taken = max(0, end - n_own)
            session.take(giver, 0, n_taken)
            own = tokens[n_taken : end + 1]
            parts = [own] if at_once else np.split(own, len(own))
            said.append([session.extend(0, part) for part in parts][-1])
    return np.array(said)
