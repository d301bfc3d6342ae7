"""A draft that takes its target's keys and values anew for a token: what records are compared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.sampling.session import Session
from pyquant.llama.model import Model


def taken_logits(
    target: Path, draft: Path, tokens: NDArray[np.int32], n_prompt: int, n_own: int
) -> NDArray[np.float32]:
    """Return what a draft says behind tokens, having read the last one and n_own before it by itself.

    The target has read a prompt at once, and all behind it token by token.
    """
    n_taken = max(0, len(tokens) - 1 - n_own)
    with (
        Model(target) as model,
        Model(draft) as of_draft,
        Session(model, 1, len(tokens), n_views=1, threads=1) as giver,
        Session(of_draft, 1, len(tokens), n_views=1, threads=1) as session,
    ):
        for part in np.split(tokens, range(n_prompt, len(tokens))):
            giver.extend(0, part)
        session.take(giver, 0, n_taken)
        return [session.extend(0, part) for part in np.split(tokens[n_taken:], n_own + 1)][-1]
