"""What a comparison of models with their base found on a text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.evaluate.by_position import Span
from pyquant.evaluate.kld import ERRORS, Kld, Scores, mean_and_error
from pyquant.evaluate.paired import PairedDifference
from pyquant.llama.cache_types import CacheTypes

SCHEMA = "pyquant.compare/1"


@dataclass(frozen=True)
class BasePerplexity:
    """The base's perplexity on the text; perplexity_error: one standard error."""

    model: str
    perplexity: float
    perplexity_error: float


@dataclass(frozen=True)
class NoiseFloor:
    """Distance of the base from itself where it is computed in other portions, on n_chunks chunks.

    kld, kld_max: mean and largest KLD per token, in nats. same_top: share of tokens.
    """

    n_chunks: int
    kld: float
    kld_max: float
    same_top: float


@dataclass(frozen=True)
class Comparison:
    """Models beside a base, by the definitions of `llama-perplexity --kl-divergence`.

    Attributes
    ----------
    name : str
        What the text is called.
    kind : str
        "text"; "chat": conversations; "bundled": a text of pyquant's; "answers": a chat that the base wrote.
    text, text_sha256 : str
        Its path, and its hash, of a plain text less a newline at its end.
    n_ctx, n_chunks, n_tokens : int
        Tokens of a chunk, of conversations of the longest one; chunks; and scored tokens of all of them.
    base : BasePerplexity
    noise_floor : NoiseFloor
    candidates : list of KLD
        In the order in which they were given; then, for each cache's types, the base and all of them.
    caches : list of CacheTypes
        Of each model that was run, the base first.
    paired : list of PairedDifference
        Of each two candidates.
    by_position : list of Span
        KLD along the context.
    sizes : list of int
        Bytes of each model's files, the base first.
    bits : list of float
        The same per weight, times 8.
    scores : list of Scores
        What each model said of every scored token, the base first. Not in the JSON.
    chunks : (n_tokens,) int
        Which chunk each scored token is of. Not in the JSON.
    """

    name: str
    kind: str
    text: str
    text_sha256: str
    n_ctx: int
    n_chunks: int
    n_tokens: int
    base: BasePerplexity
    noise_floor: NoiseFloor
    candidates: list[Kld]
    caches: list[CacheTypes]
    paired: list[PairedDifference]
    by_position: list[Span]
    sizes: list[int]
    bits: list[float]
    scores: list[Scores] = field(repr=False)
    chunks: NDArray[np.intp] = field(repr=False)

    @property
    def files(self) -> list[str]:
        """Paths of the candidates, which `model` says with the types of their caches."""
        return [
            candidate.model.removesuffix(f" ({cache})")
            for candidate, cache in zip(self.candidates, self.caches[1:])
        ]

    def to_json(self) -> dict[str, Any]:
        """Return all statistics as `pyquant compare --json` prints them."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "kind": self.kind,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "n_tokens": self.n_tokens,
            "base": asdict(self.base) | {"bits": self.bits[0], "size": self.sizes[0]},
            "noise_floor": asdict(self.noise_floor),
            "candidates": [
                candidate.to_json()
                | {
                    "file": file,
                    "cache_type_k": cache.keys,
                    "cache_type_v": cache.values,
                    "bits": bits,
                    "size": size,
                    "dominated_by": peer,
                }
                for candidate, file, cache, bits, size, peer in zip(
                    self.candidates,
                    self.files,
                    self.caches[1:],
                    self.bits[1:],
                    self.sizes[1:],
                    self.dominated_by(),
                )
            ],
            "paired": [asdict(pair) for pair in self.paired],
            "by_position": [asdict(span) for span in self.by_position],
        }

    def renamed(self, model: str, name: str) -> Comparison:
        """Call a candidate otherwise, as one whose folder goes."""

        def called(one: str) -> str:
            return name if one == model else one

        return replace(
            self,
            candidates=[replace(one, model=called(one.model)) for one in self.candidates],
            paired=[
                replace(pair, model=called(pair.model), other=called(pair.other)) for pair in self.paired
            ],
        )

    def dominated_by(self) -> list[str | None]:
        """Name for each candidate the nearest one to the base that is smaller and yet nearer than it.

        Both have caches of the same types.

        Nearer is a mean KLD that is lower by more than ERRORS standard errors of the difference of
        both, token by token. None: there is no such candidate.
        """
        kld = [scores.kld for scores in self.scores[1:]]
        sizes, caches = self.sizes[1:], self.caches[1:]
        peers: list[str | None] = []
        for ours, size, cache in zip(kld, sizes, caches):
            better = [
                (theirs.mean(), peer.model)
                for theirs, peer, peer_size, peer_cache in zip(kld, self.candidates, sizes, caches)
                if peer_size < size and peer_cache == cache and _is_above(ours, theirs)
            ]
            peers.append(min(better)[1] if better else None)
        return peers


def _is_above(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    above, error = mean_and_error(ours - theirs)
    return above > ERRORS * error
