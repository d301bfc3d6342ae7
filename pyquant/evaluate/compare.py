"""How far models are from a base, token by token: llama-perplexity's divergence without its logits file.

All models run over the same chunks side by side. Of a chunk's logits only what its scored tokens need
is ever in memory, in float32; for the percentiles 25 bytes of each scored token and model are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.evaluate.divergence import Scores, divergence
from pyquant.files.text import Text, read_text
from pyquant.llama.chunks import BATCH, Chunks, cut, forward, make_context
from pyquant.llama.model import Context, Model
from pyquant.models.model_file import ModelFile

SCHEMA = "pyquant.compare/1"
NOISE_CHUNKS = 4  # a batch of 512 tokens each: enough to know the floor's order of magnitude
NOISE_UBATCH = 64  # other matrix kernels, another order of sums

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Comparison:
    """Statistics of some models beside a base; see `to_json`."""

    base: str
    text: str
    text_sha256: str
    n_ctx: int
    n_chunks: int
    base_scores: Scores
    candidates: dict[str, Scores]
    noise: Scores

    def to_json(self) -> dict[str, Any]:
        """All statistics: those of `llama-perplexity --kl-divergence`, by its definitions.

        Perplexities and divergences in nats; changes of probability as shares, not percent. Errors
        are one standard error.
        """
        perplexity, error = self.base_scores.perplexity()
        floor = divergence(self.base_scores.first(len(self.noise.nll)), self.noise)
        return {
            "schema": SCHEMA,
            "text": self.text,
            "text_sha256": self.text_sha256,
            "n_ctx": self.n_ctx,
            "n_chunks": self.n_chunks,
            "n_tokens": len(self.base_scores.nll),
            "base": {"model": self.base, "perplexity": perplexity, "perplexity_error": error},
            "noise_floor": {
                "n_chunks": min(NOISE_CHUNKS, self.n_chunks),
                "kld": floor["kld"]["mean"],
                "kld_max": floor["kld"]["max"],
                "same_top": floor["same_top"]["share"],
            },
            "candidates": [
                {"model": model, **divergence(self.base_scores, scores)}
                for model, scores in self.candidates.items()
            ],
        }


def compare_models(
    base: str | os.PathLike[str],
    candidates: Sequence[str | os.PathLike[str]],
    text: Text | str | os.PathLike[str],
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    threads: int | None = None,
    budget: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Runs the base once and every candidate beside it over the text's chunks of n_ctx tokens.

    n_chunks: only the first ones. budget: bytes of memory that models and their working memory may
    take. The base against itself, computed in other portions, gives the noise floor. Raises
    ConfigError (also where the budget is exceeded, with the sizes), ModelFileError (also where
    vocabularies differ), TextError and RuntimeLibraryError.
    """
    text = text if isinstance(text, Text) else read_text(text)
    paths = [Path(base), *map(Path, candidates)]
    if len(set(paths)) < len(paths):
        raise ConfigError("compare: a model is given twice")
    if budget is not None:
        check_budget(paths, n_ctx=n_ctx, budget=budget)
    with ExitStack() as stack:
        models = [stack.enter_context(Model(path)) for path in paths]
        chunks = cut(models[0], text, n_ctx=n_ctx, n_chunks=n_chunks)
        for model in models[1:]:
            _same_vocabulary(models[0], model, chunks, text, n_ctx)
        contexts = [stack.enter_context(make_context(model, n_ctx, threads=threads)) for model in models]
        noise = stack.enter_context(make_context(models[0], n_ctx, threads=threads, n_ubatch=NOISE_UBATCH))
        few = Chunks(chunks.tokens[:NOISE_CHUNKS])
        *scores, noise_scores = _run(contexts, chunks, progress, beside=(noise, few))
    return Comparison(
        base=str(base),
        text=str(text.path),
        text_sha256=text.sha256,
        n_ctx=n_ctx,
        n_chunks=chunks.n_chunks,
        base_scores=scores[0],
        candidates={str(path): one for path, one in zip(candidates, scores[1:])},
        noise=noise_scores,
    )


def _run(
    contexts: list[Context],
    chunks: Chunks,
    progress: Progress | None,
    beside: tuple[Context, Chunks],
) -> list[Scores]:
    """Scores of all contexts' models, of which the first is the base, and of the context beside them,
    which goes along over the first chunks only."""
    contexts = [*contexts, beside[0]]
    spans = [chunks] * (len(contexts) - 1) + [beside[1]]
    scores = [Scores.empty(span.n_chunks * span.n_scored) for span in spans]
    at = 0
    for base, *others in zip_longest(*(forward(context, span) for context, span in zip(contexts, spans))):
        span = slice(at, at + len(base.targets))
        threads = contexts[0].n_threads
        scores[0].nll[span] = _core.negative_log_likelihood(base.logits, base.targets, threads)
        for one, other in zip(scores[1:], others):
            if other is not None:
                one.nll[span], one.kld[span], one.same_top[span] = _core.compare_logits(
                    base.logits, other.logits, base.targets, threads
                )
        at = span.stop
        if progress:
            progress(base.chunk + 1, chunks.n_chunks)
    for context, one in zip(contexts, scores):
        if not np.isfinite(one.nll).all():
            chunk = int(np.argmin(np.isfinite(one.nll))) // chunks.n_scored
            raise ModelFileError(f"{context.model.path}: not finite logits in chunk {chunk}: broken model?")
    return scores


def _same_vocabulary(base: Model, model: Model, chunks: Chunks, text: Text, n_ctx: int) -> None:
    if model.n_vocab != base.n_vocab:
        raise ModelFileError(
            f"{model.path}: {model.n_vocab} tokens in its vocabulary, {base.path} has {base.n_vocab}: "
            f"their probabilities cannot be compared"
        )
    tokens = cut(model, text, n_ctx=n_ctx, n_chunks=chunks.n_chunks).tokens
    if tokens.shape != chunks.tokens.shape or (tokens != chunks.tokens).any() or model.bos != base.bos:
        raise ModelFileError(f"{model.path}: its tokenizer cuts the text otherwise than that of {base.path}")


def check_budget(paths: Sequence[Path], *, n_ctx: int, budget: int) -> None:
    """Raises ConfigError with the sizes if models and working memory exceed `budget` bytes."""
    sizes = [(path, *memory(path, n_ctx)) for path in paths]
    total = sum(weights + working for _, weights, working in sizes)
    if total > budget:
        parts = "; ".join(
            f"{path}: {weights / 1e6:,.0f} MB of weights and {working / 1e6:,.0f} MB to run them"
            for path, weights, working in sizes
        )
        raise ConfigError(
            f"budget-memory: {total / 1e6:,.0f} MB are needed, {budget / 1e6:,.0f} MB allowed: {parts}; "
            f"compare fewer models at once, or with a smaller context"
        )


def memory(path: Path, n_ctx: int) -> tuple[int, int]:
    """Bytes that a model's weights take, and about what it takes to run it over chunks of n_ctx tokens.

    The latter: an fp16 cache of keys and values, logits of the scored tokens of a batch, and
    activations of a micro-batch of 512 tokens, of which the logits and a layer's are the largest.
    """
    model = ModelFile(path)
    n_embd, n_layer = model.hyperparameter("embedding_length"), model.hyperparameter("block_count")
    n_head = max(1, model.hyperparameter("attention.head_count"))
    n_head_kv = model.hyperparameter("attention.head_count_kv", n_head)
    n_vocab = next((t.shape[1] for t in model.tensors if t.name == "token_embd.weight"), 0)
    n_seq = max(1, BATCH // n_ctx)
    cache = 2 * 2 * n_layer * n_embd * n_head_kv // n_head * n_seq * n_ctx
    logits = 4 * n_vocab * (n_seq * (n_ctx - n_ctx // 2) + min(512, n_seq * n_ctx))
    activations = 4 * 512 * (8 * n_embd + 2 * model.hyperparameter("feed_forward_length"))
    return model.n_bytes, cache + logits + activations
