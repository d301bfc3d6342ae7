"""Check that a model says something: logits that are not finite show that it is broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.errors import ModelFileError


def check_logits(path: Path, logits: NDArray[np.float32], where: str) -> None:
    """Refuse tokens without a likeliest next one. A logit of minus infinity forbids a token, and is none.

    Parameters
    ----------
    path
        The model, to be named.
    logits : (..., n_vocab)
    where
        What the model was run over: "chunk 3".

    Raises
    ------
    ModelFileError
    """
    if logits.size and not np.isfinite(logits.max(axis=-1)).all():
        raise ModelFileError(f"{path}: not finite logits in {where}: the model is broken")
