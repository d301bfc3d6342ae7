"""The memory and the disk that a method takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyquant.calibration.gradients.llama_graph import gradient_memory
from pyquant.evaluate.kept_logits import bytes_in_memory, bytes_on_disk
from pyquant.fit.method.expected_work import Work
from pyquant.llama.cache import cache_memory
from pyquant.llama.chunks import BATCH
from pyquant.llama.context_memory import activation_memory, context_memory, n_vocab
from pyquant.models.tensor_name import kind_of
from pyquant.rounding.factors import BYTES
from pyquant.rounding.staged_context import LOGITS_BYTES, PIECE
from pyquant.rounding.staged_memory import MEMORY, most_at_work, routed_bytes

PROCESS = 190_000_000  # bytes of Python and its libraries


def memory_of(work: Work) -> int:
    """Count bytes at the most, the mapped model not counted."""
    rounds = max(
        context_memory(work.model, work.n_ctx) + BYTES * _widest(work) ** 2 * work.by_gptq,
        gradient_memory(work.model, work.n_ctx) if work.trains_scales else 0,
        *(in_memory for in_memory, _ in _while_it_runs(work)),
    )
    beside_files = _n_logits(work) * bytes_in_memory(n_vocab(work.model), work.n_ctx)
    beside_files += max(rounds, _mixing(work))
    return PROCESS + max(_calibrating(work), beside_files)


def on_disk(work: Work) -> int:
    """Count bytes beside the output until it is complete: files of two stages, and activations."""
    activations = max((spilled for _, spilled in _while_it_runs(work)), default=0)
    return min(2, len(work.stages)) * work.output_bytes + activations


def in_temporary(work: Work) -> int:
    """Count bytes in the folder for temporary files: of mixing and stages beside logits, or of a peer."""
    chunks = work.texts.held_out
    logits = bytes_on_disk(chunks.n_chunks * chunks.n_scored, n_vocab(work.model), chunks.n_ctx)
    tried = work.n_tried * work.output_bytes if work.mixed else 0
    of_inputs = work.given.path.stat().st_size if work.given else work.hessian_bytes
    equalized = work.model.n_bytes + of_inputs if work.method == "best" else 0
    return max(_n_logits(work) * logits + max(tried, equalized), work.peer_bytes)


def _n_logits(work: Work) -> int:
    """Count how often a base's logits are kept at a time: sensitivities are measured by their own."""
    return 2 if work.mixed and not work.knows_gradients else 1


def _calibrating(work: Work) -> int:
    if work.given:
        return 0
    running = max(
        gradient_memory(work.model, work.n_ctx) if work.n_output_side else 0,
        context_memory(work.model, work.n_ctx, BATCH),
        cache_memory(work.model, work.n_ctx, work.probed.n_together),
    )
    return work.sums + 2 * work.output_hessians + running


def _while_it_runs(work: Work) -> Iterator[tuple[int, int]]:
    """Give bytes in memory and on disk of each way to round a model while it runs."""
    of_token = 4 * (2 * work.width + _widest(work))  # kept between matrices
    of_logits = min(LOGITS_BYTES, 4 * PIECE * n_vocab(work.model))
    limit = MEMORY if work.memory is None else work.memory
    for n_run, n_passes in ((work.n_collected, 1), (work.n_propagated, 2)):
        if not n_run:
            continue
        n_tokens = n_run * work.n_ctx
        states = n_passes * n_tokens * of_token
        routed = max(
            (routed_bytes(work.model, t.name, t.n_per_row, n_passes * n_tokens) for t in work.experts),
            default=0,
        )
        kept = min(limit, states) + (routed if states + routed <= limit else 0)
        n_correcting = n_tokens * (n_passes > 1)
        inputs = ((each.n_in, each.matrices, n_correcting) for each in work.inputs)
        at_work = sum(most_at_work(work.model, inputs, logits=n_passes * of_logits))
        yield at_work + kept + n_passes * activation_memory(work.model, PIECE), states + routed - kept


def _mixing(work: Work) -> int:
    if not work.mixed:
        return 0
    of_kinds: Counter[str] = Counter()
    if not work.knows_gradients:  # all tensors of a kind are held, rounded, beside the mapped model
        for tensor in work.model.tensors:
            of_kinds[kind_of(tensor.name)] += tensor.n_bytes
    return max(of_kinds.values(), default=0) + context_memory(work.model, work.n_ctx, BATCH)


def _widest(work: Work) -> int:
    return max(each.n_in for each in work.inputs)
