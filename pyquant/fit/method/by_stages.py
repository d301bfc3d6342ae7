"""Make a file in stages, by statistics of what a model computes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyquant import _core
from pyquant.files.kept import keeping
from pyquant.files.output_file import check_output
from pyquant.files.output_files import rename_together
from pyquant.files.temporary import temporary_folder
from pyquant.fit.method.asked import Asked
from pyquant.fit.method.forecast import Forecast
from pyquant.fit.method.held_out import HeldOut
from pyquant.fit.method.hessian import DIAGONAL_CHUNKS, Hessian, HessianMaker, say_not_finite
from pyquant.fit.method.quantized import Quantized
from pyquant.fit.method.split_text import SplitText
from pyquant.fit.method.stages import BY_GPTQ, Stages, stages_of
from pyquant.fit.method.types_for_size import mixed_for
from pyquant.fit.method.work_folder import WorkFolder
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.shards import shard_paths
from pyquant.schemes.settings import make_mode


def by_stages(asked: Asked, texts: SplitText, expected: Forecast) -> Quantized:
    """Calibrate, mix types for a size, and try the stages of the method.

    Raises
    ------
    BrokenInput
        What enters all matrices is not finite: no method applies.
    PyquantError
        What `quantize` raises.
    """
    model, best = asked.model, asked.method == "best"
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        maker = HessianMaker(
            model, texts, texts.held_out.n_ctx, folder, threads=asked.threads, tell=asked.tell,
            progress=asked.progress,
            diagonal_chunks=DIAGONAL_CHUNKS if asked.method in BY_GPTQ else texts.n_chunks,
        )  # fmt: skip
        if asked.hessian:
            statistics = maker.in_file(asked.hessian, output_side=best)
        else:
            statistics = maker.in_cache(
                output_side=best, whole=expected.keeps_hessians, exact=asked.mixed is not None
            )
        say_not_finite(statistics.path, asked.tell)
        work = WorkFolder(asked.output, _identity(asked, texts, statistics), asked.tell)
        stack.enter_context(keeping(work.path, "finished stages and tensors"))
        stack.enter_context(work)
        settings: dict[str, Any] = {"mode": f"ggml:{asked.name}", "pure": asked.pure}
        mix = None
        if asked.mixed is not None:
            recipe = work.path / "recipe.toml"
            mix = _mix(asked, texts, statistics, work, recipe)
            settings = {"mode": "recipe", "recipe": recipe}
        held_out = stack.enter_context(HeldOut(model, texts.held_out, asked.threads, asked.progress))
        options = {"threads": asked.threads, "tell": asked.tell, "split": asked.split}
        stages = Stages(model, settings, held_out, work, options, asked.memory, asked.progress)
        collected = not asked.hessian and not expected.keeps_hessians
        stages.run(
            stages_of(asked.method, statistics.path, output_side=statistics.output_side, collected=collected)
        )
        files = _publish(asked, stages)
        peers = []
        if asked.evaluate and asked.method in BY_GPTQ:
            peers = [folder / f"llama-quantize-{asked.name}.gguf"]
            stock = {"mode": f"ggml:{asked.name}", "pure": asked.pure, "imatrix": statistics.path}
            quantize_model(model, peers[0], make_mode(stock), threads=asked.threads)
        compared = asked.compare([*peers, files[0]])
        for peer in peers:  # its folder goes
            compared = compared and compared.renamed(str(peer), peer.name)
        result = {**stages.result, "output": str(files[0]), "files": [str(path) for path in files]}
    kept = str(statistics.path) if statistics.kept else None
    return Quantized(asked.method, result, mix, stages.tried, kept, compared)


def _mix(
    asked: Asked, texts: SplitText, statistics: Hessian, work: WorkFolder, recipe: Path
) -> dict[str, Any]:
    """Write the recipe of the best mix of types, unless it is there already; returns the mix as JSON."""
    assert asked.mixed is not None
    mix = work.known("mix")
    if mix is not None and recipe.exists():
        return mix
    checkpoint = work.checkpoint("mix")
    if statistics.kept and not asked.hessian:  # in the cache, there for other sizes too
        checkpoint = statistics.path.with_suffix(".tensors")
    found = mixed_for(
        asked.model, statistics.path, texts, asked.mixed, recipe, output_side=asked.method == "best",
        threads=asked.threads, checkpoint=checkpoint, progress=asked.progress,
    ).to_json()  # fmt: skip
    work.note("mix", found)
    return found


def _identity(asked: Asked, texts: SplitText, statistics: Hessian) -> dict[str, Any]:
    """Say all that stages depend on; of statistics in a file also when that was written."""
    of_file = statistics.path.stat()
    written = [str(statistics.path), of_file.st_mtime_ns, of_file.st_size]
    return {
        "model": asked.model.sha256(),
        "type": str(asked.type),
        "pure": asked.pure,
        "method": asked.method,
        "texts": texts.key,
        "n_ctx": texts.held_out.n_ctx,
        "statistics": written if statistics.kept else None,
        "pyquant": _core.build_info()["pyquant"],
        "split": asked.split,
    }


def _publish(asked: Asked, stages: Stages) -> list[Path]:
    """Give the best stage's file, or its shards, the output's name. Returns what they are called now."""
    assert stages.best, "the first stage fails or is kept"
    files = [asked.output] if asked.split is None else shard_paths(asked.output, len(stages.best))
    for path in files:
        check_output(path, sources=asked.model.paths, force=asked.force)
    rename_together(list(zip(stages.best, files)))
    return files
