"""A target and its draft: whether they fit together, and room for both."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, NamedTuple

from pyquant.errors import ConfigError
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.draft import Draft
from pyquant.generation.speculative.decoding.model_draft import ModelDraft
from pyquant.generation.speculative.decoding.ngram_draft import NgramDraft
from pyquant.generation.speculative.decoding.shared_cache import suits
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.llama.cache import cache_memory
from pyquant.llama.check_vocabulary import TOKENS
from pyquant.llama.model import Model
from pyquant.llama.room import LOADING, RUNNING
from pyquant.machine.memory import require_memory
from pyquant.models.model_file import AnyModel, ModelFile, open_model

NGRAM = "ngram"  # the draft that looks up what followed the same tokens
TOKENIZER = "tokenizer.ggml.model"


class Size(NamedTuple):
    """Bytes of a model's weights, and of the cache of one sequence."""

    weights: int
    cache: int


def size_of(file: ModelFile, n_ctx: int) -> Size:
    """Return what a model with one sequence of n_ctx tokens takes."""
    n_bytes = sum(pqz.n_bytes for pqz in file.pqz_files) or file.n_bytes
    return Size(n_bytes, cache_memory(file, n_ctx, 1))


def open_pair(target: AnyModel, draft: AnyModel) -> tuple[ModelFile, ModelFile | str]:
    """Open a target and its draft once, "ngram" aside, so that each is read and hashed once.

    Raises ModelFileError.
    """
    return open_model(target), NGRAM if draft == NGRAM else open_model(draft)


def sha256_of(model: AnyModel) -> str:
    """Return by what costs know a model: its SHA-256, or "ngram"."""
    return NGRAM if model == NGRAM else open_model(model).sha256()


def check_pair(target: AnyModel, draft: AnyModel) -> None:
    """Refuse a draft whose tokens are not its target's: numbers of tokens go from one to the other.

    Raises ConfigError, which names the first token that differs, and ModelFileError.
    """
    files = open_model(target), open_model(draft)
    both = f"{files[1].path} cannot draft for {files[0].path}"
    tokenizers = [file.get(TOKENIZER) for file in files]
    if tokenizers[0] != tokenizers[1]:
        raise ConfigError(f"{both}: their tokenizers are {tokenizers[1]} and {tokenizers[0]}")
    vocabularies = [_tokens(file) for file in files]
    if vocabularies[0] == vocabularies[1]:
        return
    pairs = enumerate(zip_longest(*vocabularies))
    number, (of_target, of_draft) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
    raise ConfigError(
        f"{both}: their vocabularies differ, first at token {number:,}: {_shown(of_draft)} in the draft, "
        f"{_shown(of_target)} in the target"
    )


def check_both(target: AnyModel, draft: AnyModel, n_ctx: int, costs: Costs | None = None) -> None:
    """Refuse a pair that does not fit together, or not into memory, before a model is loaded.

    Each has room for n_ctx tokens at least. Costs, if there are any, have to be of this pair; both files are
    hashed for it. Raises ConfigError, ModelFileError and NotEnoughMemory.
    """
    if costs is not None:
        costs.check_models(sha256_of(target), sha256_of(draft))
    if draft == NGRAM:
        return
    files = open_model(target), open_model(draft)
    check_pair(*files)
    sizes = [size_of(file, n_ctx) for file in files]
    n_bytes = sum(size.weights + size.cache for size in sizes) + 2 * (LOADING + RUNNING)
    require_memory(n_bytes, f"{files[0].path} and its draft {files[1].path}")


@contextmanager
def open_draft(
    draft: AnyModel, session: Session, sampling: Sampling, *, threads: int | None = None
) -> Iterator[Draft]:
    """Make a draft ready.

    One that was trained with fewer tokens than its target has no more room than for these, and drafts nothing
    beyond.

    The session is of the target, with one sequence, and a view if the draft is to take its keys and values
    where these suit it; what it has read is forgotten. sampling: how the target draws. Raises ConfigError,
    ModelFileError and NotEnoughMemory.
    """
    check_goes_back(session.model)
    if draft == NGRAM:
        yield NgramDraft()
        return
    target, n_ctx = session.model.file, session.n_ctx
    check_both(target, draft, n_ctx)
    with Model(draft) as model:
        check_goes_back(model)
        room = min(n_ctx, draft_ctx(target, draft) or n_ctx)
        with Session(model, 1, room, n_views=1, threads=threads) as its_own:
            yield ModelDraft(its_own, sampling, session if suits(session, its_own) else None)


def check_goes_back(model: Model) -> None:
    """Refuse a model that would have to read its text again wherever a drafted token is refused.

    Raises ConfigError.
    """
    if model.has_states:
        raise ConfigError(
            f"{model.path}: is recurrent: its state cannot go back where a drafted token is refused, so it "
            f"can neither draft nor be drafted for; generate without --draft"
        )


def draft_ctx(target: AnyModel, draft: AnyModel) -> int | None:
    """Return how many tokens a draft was trained with, if these are fewer than its target's."""
    of_target, of_draft = (open_model(model).hyperparameter("context_length") for model in (target, draft))
    return of_draft if 0 < of_draft < of_target else None


def _tokens(file: ModelFile) -> list[str]:
    tokens: Any = file.get(TOKENS)
    if not isinstance(tokens, list):
        raise ConfigError(f"{file.path}: has no vocabulary, so it cannot be a target or a draft")
    return tokens


def _shown(token: str | None) -> str:
    return "none" if token is None else reprlib.repr(token)
