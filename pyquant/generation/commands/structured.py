"""`pyquant structured`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import Number
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import number, percent, print_table, show, size
from pyquant.cli.progress import count_bar
from pyquant.generation.commands import generation_options


@grouped
def structured(
    models: Annotated[list[Path], generation_options.models("; others are tested against the first")],
    offload: OffloadOptions,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK|FILE.py",
            parser=paths.source_or_word,
            help="What is asked: arithmetic, function_call, sql, c_function, or a task of your own, a file "
            "that is run.",
        ),
    ] = "arithmetic",
    technique: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="TECHNIQUE",
            help="free, grammar, 'grammar and few shots', 'grammar in the prompt'; repeatable; default: all.",
        ),
    ] = None,
    length: Annotated[
        Optional[list[int]],
        typer.Option(
            metavar="TOKENS",
            parser=Number(limits.TOKENS),
            help="Tokens of a completion, at most; repeatable; default: 50, 100 and 200.",
        ),
    ] = None,
    n: Annotated[int, generation_options.samples("Completions for each model and technique.")] = 100,
    seed: generation_options.Seed = 0,
    engine: Annotated[
        Optional[str],
        typer.Option(metavar="ENGINE", help="Mask engine: llguidance or lr (LALR(1)); default: by task."),
    ] = None,
    texts: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE.jsonl", parser=paths.output, help="Also write all completions, with verdicts."
        ),
    ] = None,
    exact: Annotated[
        Optional[int],
        typer.Option(
            metavar="N",
            parser=Number(limits.SAMPLES),
            help="Also draw N completions as often as the model generates them, beside as many under masks.",
        ),
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Measure whether completions keep to a form, and are right.

    Temperature 1, top-p 0.95. Shares have Wilson's 95 % interval; p is McNemar's test against the first model
    on the same seeds.
    """
    offload.use()
    from pyquant.errors import PyquantError
    from pyquant.files.output_file import check_output, write_bytes
    from pyquant.generation.structured.measure import LENGTHS, measure_structured
    from pyquant.generation.structured.task import TECHNIQUES
    from pyquant.generation.structured.tasks import load_task

    loaded = load_task(task)
    if texts:
        check_output(texts, sources=list(models), force=force)
    with count_bar(loaded.name, "completions") as progress:
        result = measure_structured(
            models, loaded, techniques=technique or TECHNIQUES, lengths=length or LENGTHS, n=n, seed=seed,
            engine=engine, threads=threads, progress=progress,
        )  # fmt: skip
    if texts:
        lines = "".join(json_module.dumps(line) + "\n" for line in result.texts())
        write_bytes(texts, lines.encode(), sources=list(models), force=force)
    shown = result.to_json()
    if exact is not None:
        from pyquant.generation.structured.exact import measure_exact

        asked = {"n": exact, "max_tokens": min(length or LENGTHS), "seed": seed}
        try:
            cells = measure_exact(models, loaded, **asked, engine=engine, threads=threads)
        except PyquantError:
            show(shown, json, _print, keep=True)  # what is finished
            raise
        shown["exact"] = [cell.to_json() for cell in cells]
    show(shown, json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    print_table(
        [
            *("model", "technique", "tokens", "parses %", "evaluates %", "right %", "cut off %"),
            *("removed", "removed/completion", "s/completion", "p"),
        ],
        [
            [
                Path(cell["model"]).name,
                cell["technique"],
                str(cell["max_tokens"]),
                *(_share(cell["scores"][score]) for score in ("parses", "evaluates", "right")),
                f"{100 * cell['cut_off'] / cell['n']:.0f}",
                percent(cell["removed"]),
                percent(cell["removed_text"]),
                f"{cell['seconds_per_text']:.2f}",
                number(cell["scores"]["right"].get("p_value"), ".3f"),
            ]
            for cell in result["cells"]
        ],
        title=f"{result['task']}, {result['cells'][0]['n']} completions a cell",
        labels=2,
    )
    for cell in {(cell["model"], cell["technique"]): cell for cell in result["cells"]}.values():
        errors = f"; {cell['errors']} checks failed" if cell["errors"] else ""
        print(
            f"{Path(cell['model']).name}, {cell['technique']}: "
            f"{cell['tokens_per_text']:.0f} tokens a completion; of each second "
            f"{cell['forward_seconds'] / cell['seconds_per_text']:.3f} for the model, "
            f"{cell['mask_seconds'] / cell['seconds_per_text']:.3f} for masks (mostly beside it), "
            f"{cell['sampling_seconds'] / cell['seconds_per_text']:.3f} for draws; "
            f"{size(cell['peak_memory'])} of memory{errors}"
        )
    _print_slowdowns(result["cells"])
    if "exact" in result:
        _print_exact(result["exact"])


def _print_slowdowns(cells: list[dict[str, Any]]) -> None:
    from pyquant.generation.structured.cost import slowdown

    for model in dict.fromkeys(cell["model"] for cell in cells):
        rates = {cell["technique"]: cell["tokens_per_second"] for cell in cells if cell["model"] == model}
        if (times := slowdown(rates)) is not None:
            print(f"{Path(model).name}: a token takes {times:.2f} times as long with the grammar as without")


def _print_exact(cells: list[dict[str, Any]]) -> None:
    rows = []
    for cell in cells:
        first = [Path(cell["model"]).name]
        effort = [f"{cell['attempts_per_text']:.1f}", f"{cell['tokens_run_per_text']:.0f}"]
        rows.append([*first, "masks", *_scores(cell["masked"]), "-", "1.0", "-"])
        rows.append([*first, "exact", *_scores(cell["exact"]), str(cell["refused"]), *effort])
    print_table(
        ["model", "completions", "evaluates %", "right %", "tokens", "refused", "attempts", "computed"],
        rows,
        title=f"From all tokens, at most {cells[0]['max_tokens']}; {cells[0]['n']} completions",
        labels=2,
    )


def _scores(counted: dict[str, Any] | None) -> list[str]:
    if counted is None:
        return ["-", "-", "-"]
    shares = [_share(counted["scores"][score]) for score in ("evaluates", "right")]
    return [*shares, f"{counted['tokens_per_text']:.0f}"]


def _share(score: dict[str, float]) -> str:
    return f"{100 * score['share']:.0f} ({100 * score['low']:.0f}..{100 * score['high']:.0f})"
