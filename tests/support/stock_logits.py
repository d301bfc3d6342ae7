"""What llama-perplexity computes, as its option --kl-divergence-base keeps it in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC = b"_logits_"


@dataclass(frozen=True)
class StockLogits:
    """Log-probabilities at each scored token, in steps of at most 16/65535.

    log_p: (n_tokens, n_vocab). targets: (n_tokens,): the tokens that came.
    """

    log_p: NDArray[np.float64]
    targets: NDArray[np.int64]

    @classmethod
    def read(cls, path: Path) -> StockLogits:
        data = path.read_bytes()
        assert data.startswith(MAGIC), path
        n_ctx, n_vocab, n_chunks = map(int, np.frombuffer(data, "<i4", 3, len(MAGIC)))
        begin = len(MAGIC) + 12
        tokens = np.frombuffer(data, "<i4", n_chunks * n_ctx, begin).reshape(n_chunks, n_ctx)
        first, even = n_ctx // 2, n_vocab + n_vocab % 2
        row = np.dtype([("step", "<f4"), ("least", "<f4"), ("n", "<u2", even)])
        rows = np.frombuffer(data, row, n_chunks * (n_ctx - 1 - first), begin + 4 * tokens.size)
        log_p = rows["n"][:, :n_vocab] * rows["step"][:, None].astype(float) + rows["least"][:, None]
        return cls(log_p, tokens[:, first + 1 :].ravel().astype(np.int64))

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.log_p[np.arange(len(self.targets)), self.targets].mean()))

    def kld(self, model: StockLogits) -> float:
        """Mean KLD of a model from this one."""
        return float((np.exp(self.log_p) * (self.log_p - model.log_p)).sum(axis=1).mean())
