"""`pyquant quantize`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import by_type, options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import number, percent, print_lines, remark, show, size, written
from pyquant.cli.progress import progress_bar
from pyquant.cli.tensor_remarks import print_types, tensor_remarks

if TYPE_CHECKING:
    from pyquant.fit.target import Target
    from pyquant.rounding.result import QuantizeResult
    from pyquant.rounding.to_pqz import PqzResult
    from pyquant.schemes import Mode


@grouped
def quantize(
    *,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.gguf",
            parser=paths.source,
            help="Model in F32, F16 or BF16; of a split model the first shard.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUT.gguf",
            parser=paths.output,
            help="File to write; with --mode and a name in .pqz codes are entropy-coded, as by `pack`.",
        ),
    ],
    type_: Annotated[
        Optional[str],
        typer.Argument(metavar="TYPE", help="As llama-quantize takes it, such as Q4_K_M; or give --mode."),
    ] = None,
    method: by_type.MethodOptions,
    target: options.WantedSize,
    mode: options.WrittenMode,
    shards: options.Shards,
    threads: options.Threads = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which types and sizes would come out; write nothing.")
    ] = False,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Quantize a model to a type, a size, or by a research scheme."""
    offload.use()
    from pyquant.errors import ConfigError
    from pyquant.files.output_file import check_output
    from pyquant.fit.step_search import START
    from pyquant.fit.target import read_target
    from pyquant.models.model_file import ModelFile
    from pyquant.models.pqz.pqz_file import PQZ_SUFFIX
    from pyquant.rounding.quantize_model import quantize_model
    from pyquant.rounding.to_pqz import quantize_to_pqz

    bound = None if method.memory is None else limits.parse_size("memory", method.memory)
    split = shards.read(output)
    if (of_type := by_type.wanted_type(type_, target, mode)) is not None:
        by_type.quantize_by_type(
            source, output, of_type, method, mode, split=split, memory=bound, threads=threads,
            dry_run=dry_run, force=force, json=json,
        )  # fmt: skip
        return
    by_type.check_method(method, has_target=target.like is not None)
    given = {"step": mode.step, **asdict(target)}
    wanted = read_target(given, prefix="--", mode=mode.mode, has_text=bool(method.text))
    searched = wanted is not None and wanted.searched
    chosen = mode.chosen(step=START if searched else mode.step)
    if chosen is None:
        raise ConfigError(
            "a TYPE such as Q4_K_M is needed, or one of --mode, --scheme, --recipe and --config; "
            "`pyquant quantize --help` lists them"
        )
    to_pqz = output.suffix == PQZ_SUFFIX
    search: dict[str, Any] = {}
    if wanted is not None and searched:
        if not dry_run:  # finding a step takes a while
            check_output(output, sources=ModelFile(source).paths, force=force)
        chosen, search = _search(source, chosen, wanted, method, threads)
    report: PqzResult | QuantizeResult
    with progress_bar(f"{chosen.mode}") as progress:
        if to_pqz and not dry_run:
            report = quantize_to_pqz(
                source, output, chosen, threads=threads, force=force, memory=bound, progress=progress,
                tell=remark,
            )  # fmt: skip
        else:
            report = quantize_model(
                source, output, chosen, threads=threads, force=force, dry_run=dry_run, split=split,
                memory=bound, progress=progress, tell=remark,
            )  # fmt: skip
    result = report.to_json() | search
    if to_pqz and dry_run:  # how codes pack is not known
        result |= {"expanded_bytes": result["output_bytes"], "output_bytes": None, "bits_per_weight": None}
    show(result, json, lambda result: _print(result, dry_run))
    for line in tensor_remarks(result["tensors"]):
        remark(line)
    if to_pqz and (peer_bytes := search.get("search", {}).get("peer_bytes")):
        for line in _beside_peer(result["output_bytes"], peer_bytes, target.like):
            remark(line)
    if chosen.mode == "ecsq" and not to_pqz and any(_has_ecsq_codes(t) for t in result["tensors"]):
        remark(f"codes take 8 bits each in a GGUF; `pyquant pack {output}` stores them at their entropy")


def _search(
    source: Path, mode: Mode, wanted: Target, method: by_type.MethodOptions, threads: int | None
) -> tuple[Mode, dict[str, Any]]:
    """Return the mode with the step that reaches the target, and what was tried."""
    from pyquant.calibration.calibrate import DEFAULT_CTX
    from pyquant.fit.evaluation import Evaluation
    from pyquant.fit.step_search import StepSearch
    from pyquant.schemes.ecsq import Ecsq

    assert isinstance(mode, Ecsq), "no other mode has a step"
    text = method.text
    with progress_bar("step") as progress:
        search = StepSearch(source, mode, threads=threads, tell=remark, progress=progress)
        evaluation = Evaluation(text, method.ctx or DEFAULT_CTX, method.chunks) if text else None
        stepped = search.find(wanted, evaluation)
    return stepped, {"search": search.to_json()}


def _has_ecsq_codes(tensor: dict[str, Any]) -> bool:
    """Tell whether mode ecsq chose a step for it; else it has a type of llama.cpp's."""
    return tensor["type"] == "Q8_0" != tensor["source_type"] and not tensor["fell_back_from"]


def _beside_peer(n_bytes: int, peer_bytes: int, type_name: str | None) -> Iterator[str]:
    """Say if what is as good as a type is no smaller than that type."""
    if n_bytes >= peer_bytes:
        better = f"--mode ggml:{type_name} is as good"
        yield f"no smaller than {type_name} itself, which has {size(peer_bytes)}: {better}"


def _print(result: dict[str, Any], dry_run: bool) -> None:
    if dry_run:
        print_types(result["tensors"])
    shown = [f"{key} {value}" for key, value in result["parameters"].items() if key != "table.values"]
    before, after, name = result["source_bytes"], result["output_bytes"], "size"
    if after is None:
        after, name = result["expanded_bytes"], "size, expanded"
    lines = {
        "mode": ", ".join([result["mode"], *shown]),
        name: f"{size(before)} -> {size(after)} ({after / before:.1%})",
        "bits per weight": number(result["bits_per_weight"], ".3f"),
    }
    if not dry_run:
        lines |= {
            "error": f"RMSE {number(result['rmse'])}, {number(result['snr_db'], '.2f')} dB",
            "zero weights": percent(result["zero_share"]),
            "time": f"{result['seconds']:.2f} s ({size(before / result['seconds'])}/s)",
        }
    print_lines(lines | {"not written" if dry_run else "written to": written(result["files"])})
