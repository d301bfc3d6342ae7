"""Change the weights of a model between two runs of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant import _core, limits
from pyquant.llama.model import Model


def running_weights(model: Model) -> dict[str, NDArray[np.uint8]]:
    """Find where llama.cpp holds the matrices that a model is run with. It runs over a few tokens.

    model: loaded as `writable`.
    Returns: by name, (n_rows, row_bytes) uint8: llama.cpp's memory, in the tensor's type. It may be written
    to, and is valid as long as the model.
    Raises ModelFileError: llama.cpp cannot run the model.
    """
    observer = _core.RunningWeights()
    n_tokens = int(limits.CTX.low)
    with model.context(n_ctx=n_tokens, threads=1, observer=observer) as context:
        context.decode(np.zeros((1, n_tokens), np.int32), 0, np.ones(n_tokens, bool))
    return observer.tensors
