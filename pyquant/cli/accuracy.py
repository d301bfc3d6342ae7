"""`pyquant accuracy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import number_option
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import made_by, made_of, print_table, remark, show
from pyquant.cli.progress import count_bar
from pyquant.errors import ConfigError


def _questions_option(what: str) -> Any:
    return typer.Option(metavar="FILE", parser=paths.source, help=f"{what}, as llama-perplexity reads them.")


@grouped
def accuracy(
    *,
    base: Annotated[
        Path, typer.Argument(metavar="BASE.gguf", parser=paths.source, help="The model to measure from.")
    ],
    models: Annotated[
        Optional[list[Path]],
        typer.Argument(
            metavar="[MODEL.gguf]...", parser=paths.source, help="Models beside it.", show_default=False
        ),
    ] = None,
    hellaswag: Annotated[Optional[Path], _questions_option("HellaSwag's questions, six lines each")] = None,
    winogrande: Annotated[Optional[Path], _questions_option("Winogrande's questions, CSV")] = None,
    multiple_choice: Annotated[
        Optional[Path], _questions_option("Multiple-choice questions such as MMLU, ARC, TruthfulQA, binary")
    ] = None,
    questions: Annotated[
        Optional[int],
        number_option(
            limits.QUESTIONS,
            "N",
            "Ask so many of each file, those that llama-perplexity draws; default: all.",
        ),
    ] = None,
    threads: options.Threads = None,
    offload: OffloadOptions,
    json: options.Json = False,
) -> None:
    """Ask models multiple-choice questions, and test whether their answers differ from the base's.

    Files and scores are those of llama-perplexity. One model is in memory at a time.
    """
    offload.use()
    from pyquant.evaluate.accuracy import measure_accuracy
    from pyquant.models.model_file import open_model

    named = {"hellaswag": hellaswag, "winogrande": winogrande, "multiple_choice": multiple_choice}
    files = {name: file for name, file in named.items() if file is not None}
    if not files:
        raise ConfigError("accuracy: give --hellaswag, --winogrande or --multiple-choice FILE")
    opened = [open_model(path) for path in (base, *(models or ()))]
    fingerprints = made_of(opened)
    with count_bar("answering", "questions") as progress:
        report = measure_accuracy(
            opened[0], opened[1:], files, n_questions=questions, threads=threads, progress=progress
        )
    show({**report.to_json(), "made_by": made_by(), "made_of": fingerprints}, json, _print, keep=True)


def _print(result: dict[str, Any]) -> None:
    for file in result["files"]:
        rows = [[*_beginning(file["base"]), "", "", "", ""]]
        for own in file["candidates"]:
            flips = [own["right_to_wrong"], own["wrong_to_right"], own["wrong_to_wrong"]]
            rows.append([*_beginning(own), *(f"{n:,}" for n in flips), f"{own['p']:.3g}"])
        columns = ["model", "accuracy %", "right to wrong", "wrong to right", "wrong to wrong", "McNemar's p"]
        print_table(columns, rows, title=file["format"].replace("_", " "))
        some = f" of {file['n_in_file']:,}" if file["n_in_file"] != file["n_questions"] else ""
        remark(
            f"{file['n_questions']:,}{some} questions; guessing answers {100 * file['chance']:.2f} % rightly"
        )


def _beginning(model: dict[str, Any]) -> list[str]:
    return [model["model"], f"{100 * model['accuracy']:.2f} ± {100 * model['error']:.2f}"]
