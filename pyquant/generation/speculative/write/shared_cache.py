"""Keys and values of a target for its draft: whether they suit it, and what it says with them.

A draft that is its target in fewer bits computes nearly the same keys and values. With the target's it is
nearer to it than with its own, and has nothing to read but the last token (QSpec, Zhao et al., 2024, shares
one cache likewise). Of another model they are meaningless, and after equalization channels of values have
other scales.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.llama.model import Context

N_VIEWS = 32  # tokens that a draft computes at once when it reads a text that is there
N_OWN = 3  # tokens of its own before each: about what drafts have that pay
PROBE = b"The capital of France is Paris. It has two million people, and the river there is the Seine"


def suits(target: Context, draft: Context) -> bool:
    """Find out whether a draft comes nearer to its target with the target's keys and values.

    Both read a sentence, the draft once with either. What counts is the mean KL divergence from the target.

    Parameters
    ----------
    target
        With one view at least; what it has read is forgotten.
    draft
        With N_VIEWS, and the target's vocabulary; what it has read is forgotten.

    Raises
    ------
    ModelFileError
    """
    if not (target.n_views and draft.n_views):
        return False
    tokens = target.model.vocabulary.tokenize(PROBE)[: min(N_VIEWS, draft.n_ctx, target.n_ctx)]
    positions, one, all_ = np.arange(len(tokens)), np.zeros(len(tokens), np.int64), np.ones(len(tokens), bool)
    for context in (target, draft):
        context.clear()
    of_target = target.run(tokens, positions, one, all_)
    own = draft.run(tokens, positions, one, all_).copy()
    draft.clear()
    try:
        taken = np.concatenate([part.copy() for part in following(draft, target, tokens, 0)])
    except ModelFileError:  # caches of other shapes
        return False
    else:
        klds = [_core.compare_logits(of_target, said, tokens, draft.n_threads)[1] for said in (taken, own)]
        return bool(np.mean(klds[0]) < np.mean(klds[1]))
    finally:
        for context in (target, draft):
            context.clear()


def following(
    draft: Context, target: Context, tokens: NDArray[np.int32], begin: int
) -> Iterator[NDArray[np.float32]]:
    """Yield what a draft says behind tokens, each as the token N_OWN + 1 of a draft.

    Of the N_OWN tokens before each it has its own keys and values, as of drafted ones; of all before these,
    its target's.

    Parameters
    ----------
    draft
        With N_VIEWS. It takes its target's keys and values behind those that it has.
    target
        Has read the tokens.
    tokens : (n,) int32
        A text from its beginning.
    begin
        The first token behind which logits are wanted.

    Yields
    ------
    logits : (m, n_vocab) float32
        Of some tokens, in their order: a view of llama.cpp's buffer, valid until the next call.

    Raises
    ------
    ModelFileError
    """
    if begin == len(tokens):
        draft.take(target, draft.length(), begin)
        return
    # Passes of one size: a short last one would be computed by other kernels, those for few tokens.
    n_passes = -(-(len(tokens) - begin) * (N_OWN + 1) // N_VIEWS)
    for ends in np.array_split(np.arange(begin, len(tokens)), n_passes):
        positions = ends[:, None] - np.arange(N_OWN, -1, -1)
        views = np.broadcast_to(1 + np.arange(len(ends))[:, None], positions.shape)
        is_there, is_last = positions >= 0, positions == ends[:, None]
        # Take no more than is needed now: what a sliding window has passed may be overwritten.
        n_taken = max(0, int(positions[-1, 0]))
        draft.take(target, min(draft.length(), n_taken), n_taken)
        # Each is computed anew behind the target's, in a sequence of its own that sees what comes before it.
        for view, first in enumerate(positions.clip(0)[:, 0].tolist(), start=1):
            draft.view(view, 0, first)
        logits = draft.run(
            tokens[positions[is_there]], positions[is_there], views[is_there], is_last[is_there]
        )
        for view in range(1, 1 + len(ends)):
            draft.cut(view, 0)
        yield logits
