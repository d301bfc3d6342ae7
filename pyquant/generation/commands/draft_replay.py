"""`pyquant draft record`, `simulate`, `search` and `predict`: policies without a drafting loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.number import Number
from pyquant.cli.output import number, percent, print_lines, print_table, remark, show
from pyquant.cli.progress import count_bar
from pyquant.files.text import Text
from pyquant.generation.commands import writing_options
from pyquant.generation.commands.drafted import DraftModel, say_pair

if TYPE_CHECKING:
    from pyquant.generation.speculative.replay.simulate import Simulated, Simulation

RecordFile = Annotated[
    Path, typer.Argument(metavar="RECORD", parser=paths.source, help="What `pyquant draft record` wrote.")
]
CostsFile = Annotated[
    Path,
    typer.Option(
        "--costs", metavar="COSTS.json", parser=paths.source, help="What `pyquant draft costs` measured."
    ),
]
Policies = Annotated[
    Optional[list[str]],
    typer.Option(
        "--policy",
        metavar="NAME[:KEY=VALUE,...]",
        help="A rule that ends drafts, such as static:threshold=2.25; repeatable; default: all.",
    ),
]
OtherModels = Annotated[
    bool,
    typer.Option(
        "--other-models",
        help="Take costs of other models than the record's: a prediction for those, with this acceptance.",
    ),
]
Temperature = Annotated[
    float,
    typer.Option(
        metavar="X", parser=Number(limits.TEMPERATURE), help="0: the target's most likely token; of all."
    ),
]
Output = Annotated[
    Optional[Path],
    typer.Option("--output", "-o", metavar="FILE.json", parser=paths.output, help="Write the result too."),
]


def record(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET.gguf", parser=paths.source, help="The model that writes.")
    ],
    draft: DraftModel,
    prompts: writing_options.PromptsFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="RECORD", parser=paths.output, help="The file to write.")
    ],
    texts: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.output,
            help="Keep the target's texts there, or take them from it: records of several drafts share it.",
        ),
    ] = None,
    chat: writing_options.Chat = False,
    n: writing_options.Samples = 1,
    max_tokens: writing_options.MaxTokens = 128,
    temperature: Temperature = 0.0,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Record what a draft would say along texts that its target writes, to replay policies on.

    What is interrupted goes on at the next text, if it is called with the same models, prompts and settings.
    """
    from pyquant.generation.speculative.record.make_record import Wanted, make_record
    from pyquant.generation.speculative.record.record import read_record

    say_pair(target, draft, max_tokens)
    wanted = Wanted(target, draft, prompts, chat, n, max_tokens, temperature, seed)
    with count_bar("recording", "texts") as progress:
        n_before = make_record(wanted, output, texts=texts, force=force, threads=threads, progress=progress)
    if n_before:
        remark(f"{output}: {n_before:,} texts were there already")
    made = read_record(output)
    result = {
        "schema": "pyquant.draft.record/2",
        "output": str(output),
        "texts": len(made.texts),
        "tokens": made.n_tokens,
        "acceptance": made.acceptance,
        "entropy": made.mean("entropy"),
    }
    show(result, json, _print_record)


def _print_record(result: dict[str, Any]) -> None:
    print_lines(
        {
            "record": result["output"],
            "texts": f"{result['texts']:,}, {result['tokens']:,} tokens",
            "acceptance": f"{percent(result['acceptance'])} of drafted tokens",
            "entropy": f"{number(result['entropy'], '.3f')} nats, the draft's mean",
        }
    )


def simulate(
    record: RecordFile,
    costs: CostsFile,
    policy: Policies = None,
    seed: options.Seed = 0,
    other_models: OtherModels = False,
    figures: Annotated[
        Optional[Path],
        typer.Option(metavar="FOLDER", parser=paths.folder, help="Draw figures of the record there."),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Replay policies on a record: what a token would take with each, beside none and the best possible."""
    simulation = _simulation(record, costs, seed, other_models)
    results = _replayed(simulation, policy)
    result: dict[str, Any] = {
        "schema": "pyquant.draft.simulate/1",
        "record": str(record),
        "costs": str(costs),
        "predicted": other_models,
        "texts": len(simulation.record.texts),
        "tokens": results[0].tokens,
        "policies": [simulated.to_json() for simulated in results],
    }
    if figures is not None:
        from pyquant.generation.figures import draw_record

        result["figures"] = [str(path) for path in draw_record(simulation, figures, force=force)]
    show(result, json, _print_simulated)


def _replayed(simulation: Simulation, policies: Sequence[str] | None) -> list[Simulated]:
    """Replays no draft, policies (None: all), and the least possible."""
    from pyquant.generation.speculative.policies import FAMILIES
    from pyquant.generation.speculative.replay.simulate import NONE, ORACLE

    names = policies or [name for name in FAMILIES if name != "expected_value"] + [simulation.calibrated()]
    return [simulation.run(name) for name in (NONE, *names, ORACLE)]


def _simulation(record: Path, costs: Path, seed: int, other_models: bool) -> Simulation:
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.record.record import read_record
    from pyquant.generation.speculative.replay.simulate import Simulation

    return Simulation(read_record(record), read_costs(costs), seed=seed, other_models=other_models)


def _print_simulated(result: dict[str, Any]) -> None:
    _print_policies(
        result["policies"],
        f"{result['texts']:,} texts, {result['tokens']:,} tokens behind their first ones{_predicted(result)}",
    )
    for path in result.get("figures", []):
        print(path)


def _predicted(result: dict[str, Any]) -> str:
    return "; a prediction: costs are of other models" if result["predicted"] else ""


def _print_policies(policies: Sequence[dict[str, Any]], title: str) -> None:
    print_table(
        ["policy", "ms/token", "gain", "tokens/round", "accepted %", "drafted", "rounds"],
        [
            [
                row["policy"],
                f"{row['ms_per_token']:.3f} ± {row['ms_per_token_error']:.3f}",
                f"{row['gain']:.3f}",
                f"{row['tokens_per_round']:.2f}",
                number(row["acceptance"] and 100 * row["acceptance"], ".1f"),
                f"{row['calls']:,}",
                f"{row['rounds']:,}",
            ]
            for row in policies
        ],
        title=title,
    )


def search(
    record: RecordFile,
    costs: CostsFile,
    policy: Policies = None,
    seed: options.Seed = 0,
    other_models: OtherModels = False,
    output: Output = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Find the parameters of policies that take least on a record, over the grid of all of them.

    Parameters that are given with a policy are not searched. The JSON has what came of each combination.
    """
    from pyquant.files.json import write_json
    from pyquant.files.output_file import check_output
    from pyquant.generation.speculative.policies import FAMILIES
    from pyquant.generation.speculative.replay.search import SCHEMA, search

    if output is not None:
        check_output(output, sources=[], force=force)
    simulation = _simulation(record, costs, seed, other_models)
    found = {}
    for name in policy or FAMILIES:
        with count_bar(name, "settings") as progress:
            found[name] = search(simulation, name, progress)
    result = {
        "schema": SCHEMA,
        "record": str(record),
        "costs": str(costs),
        "predicted": other_models,
        "texts": len(simulation.record.texts),
        "policies": {name: its.to_json() for name, its in found.items()},
    }
    if output is not None:
        write_json(output, result, sources=[], force=force)
    show(result, json, _print_found, keep=True)


def _print_found(result: dict[str, Any]) -> None:
    tried = sum(len(found["surface"]) for found in result["policies"].values())
    best = [found["best"] for found in result["policies"].values()]
    _print_policies(best, f"Best of {tried:,} settings on {result['texts']:,} texts{_predicted(result)}")


def predict(
    costs: CostsFile,
    target: Annotated[
        Optional[Path],
        typer.Argument(metavar="[TARGET.gguf", parser=paths.source, help="The model that is to write."),
    ] = None,
    draft: Annotated[
        Optional[Path],
        typer.Argument(
            metavar="DRAFT.gguf]", parser=paths.source, help="Cheaper model with the same vocabulary."
        ),
    ] = None,
    acceptance: Annotated[
        Optional[float],
        typer.Option(
            metavar="SHARE",
            parser=Number(limits.ACCEPTANCE),
            help="Of drafted tokens, as `pyquant compare` has it: same top, or where tokens are drawn, "
            "sampled acceptance. Drafts of fixed lengths are predicted.",
        ),
    ] = None,
    text: Annotated[
        Optional[Text],
        typer.Option(
            metavar="FILE",
            parser=paths.text,
            help="Read this text with both models instead, as `pyquant compare` does: all policies are "
            "predicted.",
        ),
    ] = None,
    ctx: options.Ctx = 512,
    chunks: options.Chunks = None,
    temperature: Temperature = 0.0,
    policy: Policies = None,
    other_models: OtherModels = False,
    k: Annotated[
        int,
        typer.Option(
            "--most",
            metavar="N",
            parser=Number(limits.DRAFT_TOKENS),
            help="Longest draft, with --acceptance.",
        ),
    ] = 16,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Predict what drafting gains before a token is drafted: by acceptance alone, or from a text.

    No token is written for either.
    """
    from pyquant.errors import ConfigError

    if acceptance is not None and (target or draft or text or policy):
        raise ConfigError("predict: --acceptance goes without models, --text and --policy")
    if acceptance is not None:
        _predict_lengths(acceptance, costs, k, json)
    elif target is None or draft is None or text is None:
        raise ConfigError("predict: give TARGET.gguf, DRAFT.gguf and --text FILE, or --acceptance SHARE")
    else:
        _predict_on_text(
            target, draft, text, costs, (ctx, chunks, temperature), policy, other_models, threads, json
        )


def _predict_on_text(
    target: Path,
    draft: Path,
    text: Text,
    costs: Path,
    reading: tuple[int, int | None, float],
    policy: Sequence[str] | None,
    other_models: bool,
    threads: int | None,
    json: bool,
) -> None:
    from pyquant.cli.streams import hear_loggers
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.record.read_text import Reading, record_of_text
    from pyquant.generation.speculative.replay.simulate import Simulation

    hear_loggers()
    measured = read_costs(costs)
    say_pair(target, draft, reading[0])
    with count_bar("reading", "chunks") as progress:
        record = record_of_text(target, draft, text, Reading(*reading), threads=threads, progress=progress)
    simulation = Simulation(record, measured, other_models=other_models)
    result = {
        "schema": "pyquant.draft.predict/1",
        "text": str(text.path),
        "costs": str(costs),
        "predicted": other_models,
        "texts": len(record.texts),
        "tokens": record.n_tokens,
        "acceptance": record.acceptance,
        "policies": [its.to_json() for its in _replayed(simulation, policy)],
    }
    show(result, json, _print_simulated)


def _predict_lengths(acceptance: float, costs: Path, k: int, json: bool) -> None:
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.replay.predict import predict

    measured = read_costs(costs)
    result = {
        "schema": "pyquant.draft.predict/1",
        "acceptance": acceptance,
        "costs": str(costs),
        "lengths": [predict(acceptance, measured, n).to_json() for n in range(k + 1)],
    }
    show(result, json, _print_predicted)


def _print_predicted(result: dict[str, Any]) -> None:
    print_table(
        ["drafted", "tokens/round", "ms/token", "gain"],
        [
            [
                str(row["k"]),
                f"{row['tokens_per_round']:.2f}",
                f"{row['ms_per_token']:.3f}",
                f"{row['gain']:.3f}",
            ]
            for row in result["lengths"]
        ],
        title=f"{100 * result['acceptance']:.1f} % of drafted tokens accepted",
    )
