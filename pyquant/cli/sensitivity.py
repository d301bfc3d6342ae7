"""`pyquant sensitivity`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pyquant import limits
from pyquant.cli import options
from pyquant.cli.groups import grouped
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import print_table, remark, show
from pyquant.cli.progress import count_bar
from pyquant.limits import SENSITIVITY_CHUNKS, SENSITIVITY_CTX


@grouped
def sensitivity(
    *,
    model: options.FloatModel,
    hessian: options.HessianFile,
    text: options.TextFiles,
    output: Annotated[Path, options.output_option("FILE.toml", "File for the sensitivities.")],
    ctx: options.Ctx = SENSITIVITY_CTX,
    chunks: Annotated[
        int, number_option(limits.CHUNKS, "N", "Use only the first chunks of each text.", "--chunks")
    ] = SENSITIVITY_CHUNKS,
    threads: options.Threads = None,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Measure the KLD that errors in each tensor cause."""
    offload.use()
    from pyquant.files.kept import checkpoint_of
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.fit.measure_sensitivity import measure_sensitivity

    check_output(output, sources=[], force=force)
    with (
        checkpoint_of(output, "measured tensors") as checkpoint,
        count_bar("sensitivity", "tensors") as progress,
    ):
        measured = measure_sensitivity(
            model,
            hessian,
            text,
            n_ctx=ctx,
            n_chunks=chunks,
            threads=threads,
            checkpoint=checkpoint,
            progress=progress,
            tell=remark,
        )
        write_bytes(output, measured.to_toml().encode(), sources=[], force=force)
    show({**measured.to_json(), "output": str(output)}, json, _print)
    if not any(of.error for of in measured.by_tensor.values()):
        remark(f"one chunk of {ctx} tokens: nothing says how certain this is; more text or --chunks does")


def _print(result: dict[str, Any]) -> None:
    rows = [
        [
            name,
            f"{of['sensitivity']:.4g}",
            f"{of['measured']:.4g}",
            f"{of['error']:.0%}" if of["error"] else "?",
        ]
        for name, of in result["by_tensor"].items()
    ]
    print_table(["tensor", "KLD per error", "as measured", "+/-"], rows)
    print(f"written to {result['output']}")
