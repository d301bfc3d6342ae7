"""Keys and values of a target for its draft: whether they suit it.

A draft that is its target in fewer bits computes nearly the same keys and values. With the target's it is
nearer to it than with its own, and has nothing to read but the last token (QSpec, Zhao et al., 2024, shares
one cache likewise). Of another model they are meaningless, and after equalization channels of values have
other scales.
"""

from __future__ import annotations

import numpy as np

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.generation.sampling.session import Session

SPAN = 4  # tokens of a draft that pays, about: of those before it in the draft each has its own
PROBE = b"The capital of France is Paris. It has two million people, and the river there is the Seine"


def suits(target: Session, draft: Session) -> bool:
    """Find out whether a draft comes nearer to its target with the target's keys and values.

    Both read a sentence, the draft once with either. What counts is the mean KLD from the target.
    What they have read is forgotten. Nothing suits where one of them has no view. Raises ModelFileError.
    """
    if not (target.context.n_views and draft.context.n_views):
        return False
    tokens = target.model.vocabulary.tokenize(PROBE)[: min(target.n_ctx, draft.n_ctx)]
    for session in (target, draft):
        session.roll_back(0, 0)
    try:
        of_target = target.follow(0, tokens)
        own = draft.follow(0, tokens).copy()
        draft.roll_back(0, 0)
        taken = []
        for begin in range(0, len(tokens), SPAN):
            draft.take(target, min(begin, int(draft.lengths[0])), begin)
            taken.append(draft.follow(0, tokens[begin : begin + SPAN]).copy())
            draft.roll_back(0, begin)
    except ModelFileError:  # caches of other shapes
        return False
    else:
        threads = draft.context.n_threads
        said = (np.concatenate(taken), own)
        klds = [_core.compare_logits(of_target, logits, tokens, threads)[1].mean() for logits in said]
        return bool(klds[0] < klds[1])
    finally:
        for session in (target, draft):
            session.roll_back(0, 0)
