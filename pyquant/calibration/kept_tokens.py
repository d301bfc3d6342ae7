"""Tokens that a Hessian file keeps of those that the model was run over, and which text each is of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.hessian_file import TOKENS, Origin
from pyquant.calibration.hessian_rows import RowReader
from pyquant.calibration.sample import sample_chunks, spread
from pyquant.calibration.soundness import check_values
from pyquant.errors import ModelFileError


class KeptTokens:
    """Chunks of tokens, random ones among them, in the order of the texts.

    rows, origin: of the file; None for an importance matrix, which keeps none. called: what to call it.
    """

    def __init__(self, rows: RowReader | None, origin: Origin | None, called: Path) -> None:
        self._rows, self._origin, self._called = rows, origin, called

    @property
    def are_there(self) -> bool:
        """Say whether the file has any."""
        return self._rows is not None and TOKENS in self._rows.tensors

    def tokens(self, n_chunks: int | None = None) -> NDArray[np.int32]:
        """Give some of the tokens; None: all.

        Returns
        -------
        (n_chunks, n_ctx) int32
            Fewer chunks if the file has fewer.

        Raises
        ------
        ModelFileError
            The file has none, or is damaged.
        """
        if self._rows is None or TOKENS not in self._rows.tensors:
            raise ModelFileError(f"{self._called}: holds no tokens to run the model over; calibrate anew")
        kept = self._rows.read(TOKENS, np.int32)
        check_values(self._rows.tensors[TOKENS].path, "tokens", kept)
        return kept if n_chunks is None else spread(kept, n_chunks)

    def texts(self, n_chunks: int | None = None) -> NDArray[np.int32]:
        """Say of which text each chunk of `tokens` is.

        Returns
        -------
        (n_chunks,) int32
            Its number among the texts; -1 for random tokens.

        Raises
        ------
        ModelFileError
            The file has no tokens, or others than its texts would give.
        """
        used, n_kept = self._origin.texts if self._origin else [], len(self.tokens())
        numbers = [
            np.full((text.n_chunks, 1), number if text.sha256 else -1, np.int32)
            for number, text in enumerate(used)
        ]
        kept = sample_chunks(numbers, [text.weight for text in used])[:, 0]
        if len(kept) != n_kept:
            raise ModelFileError(
                f"{self._called}: holds {n_kept} chunks of tokens, where its texts give {len(kept)}; "
                "calibrate anew"
            )
        return kept if n_chunks is None else spread(kept, n_chunks)
