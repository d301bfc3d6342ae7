"""`pyquant study`: run, list, show, validate and export experiments."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import print_json, print_table, remark
from pyquant.cli.single_values import Commands
from pyquant.cli.study_progress import study_progress
from pyquant.errors import ConfigError

app = Commands(
    help="Run experiments of many quantizers, models and texts.",
    no_args_is_help=True,
)

Results = Annotated[
    Path, typer.Argument(metavar="RESULTS", parser=paths.folder, help="A folder that `study run` made.")
]


@app.command()
@grouped
def run(
    *,
    config: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", parser=paths.source, help="Such as configs/thesis.toml.")
    ],
    model: Annotated[
        Optional[list[Path]],
        typer.Option(
            metavar="FILE", parser=paths.source, help="A GGUF model in F32, F16 or BF16; repeatable."
        ),
    ] = None,
    text: Annotated[
        Optional[list[paths.NamedPath]],
        typer.Option(
            metavar="[NAME=]FILE",
            parser=paths.maybe_named_source,
            help="A UTF-8 text to evaluate on; repeatable.",
        ),
    ] = None,
    chat: Annotated[
        Optional[list[paths.NamedPath]],
        typer.Option(
            metavar="[NAME=]FILE.jsonl",
            parser=paths.maybe_named_source,
            help="Conversations to evaluate on, as `pyquant compare --chat` has them; repeatable.",
        ),
    ] = None,
    calibration_text: Annotated[
        Optional[list[paths.NamedPath]],
        typer.Option(
            metavar="NAME=FILE",
            parser=paths.named_source,
            help="A UTF-8 text for a calibration of the TOML; repeatable.",
        ),
    ] = None,
    results: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FOLDER",
            parser=paths.folder,
            help="Where results go; default: ./NAME-results of NAME.toml.",
        ),
    ] = None,
    ctx: Annotated[
        Optional[int],
        number_option(limits.CTX, "TOKENS", "Tokens in a chunk, instead of what the TOML says."),
    ] = None,
    chunks: Annotated[
        Optional[int],
        number_option(limits.CHUNKS, "N", "Chunks of each text, instead of what the TOML says."),
    ] = None,
    samples: Annotated[
        Optional[int],
        number_option(
            limits.SAMPLES,
            "N",
            "Completions for each task and technique, instead of what the TOML says.",
        ),
    ] = None,
    workers: Annotated[
        Optional[int],
        number_option(limits.PROCESSES, "N", "Processes; default: one for every four cores."),
    ] = None,
    threads: Annotated[
        Optional[int],
        number_option(limits.THREADS, "N", "Of each process; default: they share the cores."),
    ] = None,
    cluster: Annotated[
        Optional[str],
        typer.Option(
            metavar="WHERE", help="A Dask cluster instead: its scheduler file (.json), or tcp://HOST:PORT."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep quantized models and statistics, in RESULTS.")
    ] = False,
    offload: OffloadOptions,
) -> None:
    """Do what is missing of a study, and write its report.

    Every result is kept as soon as it is there: stop at any time, and start again to go on.
    """
    if cluster and offload.given:
        raise ConfigError("gpu-layers: workers of a cluster read LLAMA_ARG_N_GPU_LAYERS; set it for them")
    offload.use()
    from pyquant.study.config import read_study
    from pyquant.study.run import run_study

    def named(files: list[paths.NamedPath] | None) -> list[tuple[str | None, Path]]:
        # A name that is the file's is given none, so that folders can tell files apart.
        return [(None if file.name == file.path.name else file.name, file.path) for file in files or ()]

    study = read_study(
        config, models=model or (), texts=named(text), chats=named(chat), ctx=ctx, chunks=chunks,
        samples=samples,
        calibration_texts=[(its.name, its.path) for its in calibration_text or ()],
    )  # fmt: skip
    with study_progress() as watch:
        done = run_study(
            study,
            results or Path(f"{config.stem}-results"),
            workers=workers,
            threads=threads,
            cluster=cluster,
            keep=keep,
            command=shlex.join(["pyquant", *sys.argv[1:]]),
            watch=watch,
            hashing=lambda name: remark(f"reading {name}"),
        )
    for warning in done.warnings:
        remark(f"llama.cpp: {warning}")
    print(f"{done.made} results made, {done.kept} were there; report: {done.report}")


@app.command("ls")
def list_runs(results: Results, json: options.Json = False) -> None:
    """List the runs in a results folder.

    Those that the last study did not ask for, too.
    """
    from pyquant.study.results.read import understood
    from pyquant.study.store import Store

    with understood(results):
        store = Store(results)
        records = [store.read(key) for key in store.finished()]
        rows = []
        for record in records:
            made = record["provenance"]
            names = made["names"]
            what = [names.get("model"), names.get("quantizer") or "unquantized", names.get("text") or ""]
            items = str(record["items"]["n_items"]) if "items" in record else ""
            rows.append([record["key"], *what, items, made["started"], f"{made['seconds']:.1f} s"])
        if json:
            kept = ("key", "metric", "inputs", "items", "provenance")
            listed = [{key: record[key] for key in kept if key in record} for record in records]
            print_json({"schema": "pyquant.study_runs/1", "runs": listed})
        else:
            print_table(["run", "model", "quantizer", "text", "items", "started", "time"], rows)


@app.command()
def show(
    results: Results,
    run: Annotated[
        Optional[str], typer.Argument(metavar="[RUN]", help="One run's file, by its name.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the last study's tables, or one run.

    Tables are without lesser columns; --json has all.
    """
    from pyquant.study.metrics import MEASURABLE
    from pyquant.study.report.tables import results_table
    from pyquant.study.results.columns import known_columns
    from pyquant.study.results.read import read_results, understood
    from pyquant.study.store import Store

    with understood(results):
        store = Store(results)
        if run:
            print_json(store.read(run))
            return
        of_study = read_results(store)
        rows = results_table(of_study)
        if json:
            complete = of_study.complete
            print_json({"schema": "pyquant.study_results/1", "complete": complete, "results": rows})
            return
        together = [column for metric in MEASURABLE if not metric.own_table for column in metric.columns]
        groups = [together, *(metric.columns for metric in MEASURABLE if metric.own_table)]
        for place in dict.fromkeys((row["model"], row["text"]) for row in rows):
            mine = [row for row in rows if (row["model"], row["text"]) == place]
            title = " on ".join(filter(None, place))
            for group in groups:
                columns = [column for column in known_columns(group, mine) if not column.lesser]
                if not columns:
                    continue
                print_table(
                    ["quantizer", *(column.head for column in columns)],
                    [[row["quantizer"], *(column.text(row) for column in columns)] for row in mine],
                    title=title,
                )
        if not of_study.complete:
            remark("not finished: `pyquant study run` goes on")


@app.command()
def validate(results: Results, json: options.Json = False) -> None:
    """Check the files of a results folder by name and digest."""
    from pyquant.errors import StudyError
    from pyquant.study.store import Store

    store = Store(results)
    keys = store.finished()
    problems = {key: problem for key in keys if (problem := store.problem(key))}
    if json:
        print_json({"schema": "pyquant.study_validate/1", "n_runs": len(keys), "problems": problems})
    elif not problems:
        print(f"{results}: {len(keys)} runs, all sound")
    if problems:
        raise StudyError(
            f"{len(problems)} of {len(keys)} runs are unsound:\n  " + "\n  ".join(problems.values())
        )


@app.command()
def export(
    results: Results,
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT", parser=paths.output, help="A .csv, .parquet, .sqlite or .duckdb file."
        ),
    ],
    table: Annotated[
        str,
        typer.Option(
            help="results, codes, zero_runs, gptq, paired; or METRIC_items, results per token of a metric."
        ),
    ] = "results",
    force: options.Force = False,
) -> None:
    """Write the last study's results for other tools.

    A database gets all tables but those of items.
    """
    from pyquant.study.report.export import export as write

    counts = write(results, output, table=table, force=force)
    print(f"written to {output}: " + ", ".join(f"{count} rows of {name}" for name, count in counts.items()))
