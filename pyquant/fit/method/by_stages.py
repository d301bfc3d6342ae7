"""Make a file in stages, by statistics of what a model computes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyquant.calibration.sources import chunks_hash
from pyquant.evaluate.comparison import Comparison
from pyquant.files.kept import keeping
from pyquant.files.output_file import check_output
from pyquant.files.output_files import rename_together
from pyquant.files.temporary import temporary_folder
from pyquant.fit.method.forecast import Forecast
from pyquant.fit.method.held_out import HeldOut
from pyquant.fit.method.hessian import DIAGONAL_CHUNKS, Hessian, HessianMaker, say_not_finite
from pyquant.fit.method.quantized import Quantized
from pyquant.fit.method.request import Request
from pyquant.fit.method.split_text import SplitText
from pyquant.fit.method.stages import BY_GPTQ, Stages, stages_of
from pyquant.fit.method.types_for_size import mixed_for
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.machine.environment import build_and_cpu
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import shard_paths
from pyquant.schemes.settings import make_mode


def by_stages(request: Request, texts: SplitText, expected: Forecast) -> Quantized:
    """Calibrate, mix types for a size, and try the stages of the method.

    Raises
    ------
    BrokenInput
        What enters all matrices is not finite: no method applies.
    PyquantError
        What `quantize` raises.
    """
    best = request.method == "best"
    with temporary_folder() as folder:
        maker = HessianMaker(
            request.model, texts, texts.held_out.n_ctx, folder, threads=request.threads, tell=request.tell,
            progress=request.progress, n_bytes=expected.making,
            diagonal_chunks=DIAGONAL_CHUNKS if request.method in BY_GPTQ else texts.n_chunks,
        )  # fmt: skip
        if request.hessian:
            statistics = maker.in_file(request.hessian, output_side=best)
        else:
            statistics = maker.in_cache(
                output_side=best, whole=expected.keeps_hessians, exact=request.mixed is not None
            )
        say_not_finite(statistics.path, request.tell)
        files, stages, mix = _made(request, texts, statistics, expected)
        compared = _compare(request, statistics, files[0], folder)
        result = {**stages.result, "output": str(files[0]), "files": [str(path) for path in files]}
    kept = str(statistics.path) if statistics.kept else None
    return Quantized(request.method, result, mix, stages.tried, kept, compared)


def _made(
    request: Request, texts: SplitText, statistics: Hessian, expected: Forecast
) -> tuple[list[Path], Stages, dict[str, Any] | None]:
    """Try the stages, and give the best one's file the output's name; returns the mix of types as well."""
    settings: dict[str, Any] = {"mode": f"ggml:{request.name}", "pure": request.pure}
    mix = None
    with ExitStack() as stack:
        work = WorkFolder(request.output, _identity(request, texts, statistics), request.tell)
        stack.enter_context(keeping(work.path, "finished stages and tensors"))
        stack.enter_context(work)
        if request.mixed is not None:
            recipe = work.path / "recipe.toml"
            mix = _mix(request, texts, statistics, work, recipe)
            settings = {"mode": "recipe", "recipe": recipe}
        held_out = stack.enter_context(
            HeldOut(request.model, texts.held_out, request.threads, request.progress)
        )
        options = {"threads": request.threads, "tell": request.tell, "split": request.split}
        stages = Stages(request.model, settings, held_out, work, options, request.memory, request.progress)
        stages.run(
            stages_of(
                request.method,
                statistics.path,
                output_side=statistics.output_side,
                collected=not expected.keeps_hessians,
                propagates=not expected.lacks_tokens,
                trains_scales=request.trains_scales,
            )
        )
        return _publish(request, stages), stages, mix


def _compare(request: Request, statistics: Hessian, output: Path, folder: Path) -> Comparison | None:
    """Measure the output's KLD, if it is wanted, and of GPTQ llama-quantize's beside it."""
    peers = []
    if request.evaluate and request.method in BY_GPTQ:
        peers = [folder / f"llama-quantize-{request.name}.gguf"]
        settings = {"mode": f"ggml:{request.name}", "pure": request.pure, "imatrix": statistics.path}
        quantize_model(request.model, peers[0], make_mode(settings), threads=request.threads)
    compared = request.compare([*peers, output])
    for peer in peers:  # its folder goes
        compared = compared and compared.renamed(str(peer), peer.name)
    return compared


def _mix(
    request: Request, texts: SplitText, statistics: Hessian, work: WorkFolder, recipe: Path
) -> dict[str, Any]:
    """Write the recipe of the best mix of types, unless it is there already; returns the mix as JSON."""
    assert request.mixed is not None
    mix = work.known("mix")
    if mix is not None and recipe.exists():
        return mix
    checkpoint = work.checkpoint("mix")
    if statistics.kept and not request.hessian:  # in the cache, there for other sizes too
        checkpoint = statistics.path.with_suffix(".tensors")
    found = mixed_for(
        request.model, statistics.path, texts, request.mixed, recipe, output_side=request.method == "best",
        split=request.split, threads=request.threads, checkpoint=checkpoint, progress=request.progress,
        tell=request.tell,
    ).to_json()  # fmt: skip
    work.note("mix", found)
    return found


def _identity(request: Request, texts: SplitText, statistics: Hessian) -> dict[str, Any]:
    """Say all that stages depend on; of statistics in a file also when that was written."""
    of_file = statistics.path.stat()
    written = [str(statistics.path), of_file.st_mtime_ns, of_file.st_size]
    return {
        "model": request.model.sha256(),
        "type": request.name,
        "mixed": None if request.mixed is None else asdict(request.mixed),
        "pure": request.pure,
        "method": request.method,
        "texts": texts.key,
        "held_out": chunks_hash(texts.held_out),
        "n_ctx": texts.held_out.n_ctx,
        "statistics": written if statistics.kept else None,
        "made_by": build_and_cpu(),
        "split": request.split,
    }


def _publish(request: Request, stages: Stages) -> list[Path]:
    """Give the best stage's file, or its shards, the output's name. Returns what they are called now."""
    assert stages.best, "the first stage fails or is kept"
    files = [request.output] if request.split is None else shard_paths(request.output, len(stages.best))
    for path in files:
        check_output(path, sources=request.model.paths, force=request.force)
    rename_together(list(zip(stages.best, files)))
    return files
