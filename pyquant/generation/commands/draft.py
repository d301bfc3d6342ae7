"""`pyquant draft`: what drafting takes and brings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.number import Number
from pyquant.cli.output import number, percent, print_table, show
from pyquant.cli.progress import count_bar
from pyquant.cli.streams import hear_loggers
from pyquant.generation.commands import draft_replay, writing_options
from pyquant.generation.commands.drafted import DraftModel, say_pair

app = typer.Typer(
    no_args_is_help=True,
    help="Let a cheap draft write ahead of a model: what that takes, and what it brings.",
)
app.command("record")(draft_replay.record)
app.command("simulate")(draft_replay.simulate)
app.command("search")(draft_replay.search)
app.command("predict")(draft_replay.predict)

Target = Annotated[
    Path, typer.Argument(metavar="TARGET.gguf", parser=paths.source, help="Model whose texts are wanted.")
]


@app.command()
def costs(
    target: Target,
    draft: DraftModel,
    rounds: Annotated[
        int, typer.Option(metavar="N", parser=Number(limits.ROUNDS), help="Measurements of each, in turns.")
    ] = 5,
    depth: Annotated[
        int,
        typer.Option(
            metavar="TOKENS",
            parser=Number(limits.DRAFT_DEPTH),
            help="Tokens that both models have read before: as many as texts have in the middle.",
        ),
    ] = limits.MEASURED_BEHIND,
    output: Annotated[
        Optional[Path],
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            parser=paths.output,
            help="Also write the result, for policies that decide by it.",
        ),
    ] = None,
    threads: options.Threads = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Measure a draft token, and passes of the target over 1 to 32 tokens."""
    from pyquant.files.json import write_json
    from pyquant.files.output_file import check_output
    from pyquant.generation.speculative.measure.cost_meter import LARGEST
    from pyquant.generation.speculative.measure.measure_costs import measure_costs

    hear_loggers()
    if output:
        check_output(output, sources=[target, Path(draft)], force=force)
    say_pair(target, draft, depth + LARGEST)
    with count_bar("measuring", "passes") as progress:
        report = measure_costs(target, draft, depth=depth, rounds=rounds, threads=threads, progress=progress)
    result = report.to_json()
    if output:
        write_json(output, result, sources=[target, Path(draft)], force=force)
    show(result, json, _print_costs, keep=True)


def _print_costs(result: dict[str, Any]) -> None:
    draft, single = result["draft"], result["alone"]["seconds"]
    timed = {"no draft: a token": result["alone"]}
    timed |= {"a draft's first token": draft, "that has two to read": draft["of_two"]}
    timed |= {"a draft's next token": draft["next"], "each token of its prompt": draft["prompt"]}
    timed |= {f"a pass over {row['tokens']}": row for row in result["verify"]}
    rows = [[name, *_milliseconds(row), f"{row['seconds'] / single:.2f}"] for name, row in timed.items()]
    print_table(["", "ms", "ms, spread", "of no draft"], rows)
    share = draft["certainty"]["seconds"] / draft["seconds"]
    print(f"of a draft token, entropy and probabilities for policies: {percent(share)}")


def _milliseconds(row: dict[str, float]) -> list[str]:
    return [f"{1e3 * row['seconds']:.2f}", f"{1e3 * row['low']:.2f}..{1e3 * row['high']:.2f}"]


@app.command()
def run(
    target: Target,
    draft: DraftModel,
    prompts: writing_options.PromptsFile,
    policy: Annotated[
        Optional[list[str]],
        typer.Option(metavar="NAME:KEY=VALUE,...", help="How far drafts go; repeatable; default: fixed."),
    ] = None,
    found: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FOUND",
            parser=paths.source,
            help="Also the best setting of each policy in what `pyquant draft search -o` wrote.",
        ),
    ] = None,
    chat: writing_options.Chat = False,
    max_tokens: writing_options.MaxTokens = 128,
    temperature: Annotated[
        float,
        typer.Option(
            metavar="X",
            parser=Number(limits.TEMPERATURE),
            help="0: always the most likely token; above: top-k 40, top-p 0.95, min-p 0.05.",
        ),
    ] = 0,
    seed: options.Seed = 0,
    turns: Annotated[
        int, typer.Option(metavar="N", parser=Number(limits.ROUNDS), help="How often all of it is done.")
    ] = 3,
    until_apart: Annotated[
        bool,
        typer.Option(
            "--until-apart",
            help="Stop before --turns, if the fastest is faster than the next one beyond chance.",
        ),
    ] = False,
    costs: writing_options.CostsFile = None,
    record: Annotated[
        Optional[Path],
        typer.Option(
            metavar="RECORD",
            parser=paths.source,
            help="Of the same texts: also show what its replay with --costs, and its acceptance, foretell.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also read texts token by token with the target, and show where it would go on otherwise.",
        ),
    ] = False,
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Write the same texts with no draft and with each policy, in turns, and compare their times.

    With --costs these are also measured again, in turns with the texts, and what the same rounds take by
    them is shown.
    """
    from pyquant.errors import ConfigError
    from pyquant.generation.sampling.prompt import read_prompts
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.generation.speculative.measure.run import run_policies
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.record.make_record import Wanted
    from pyquant.generation.speculative.record.record import read_record_of
    from pyquant.generation.speculative.replay.search import read_found

    hear_loggers()
    if record is not None and costs is None:
        raise ConfigError("run: --record needs --costs")
    measured = read_costs(costs) if costs is not None else None
    recorded = None
    if record is not None:
        wanted = Wanted(target, draft, prompts, chat, 1, max_tokens, temperature, seed)
        recorded = read_record_of(record, wanted.source())
    policies = [*(policy or []), *(read_found(found) if found else [])]
    asked = read_prompts(prompts)
    say_pair(target, draft, max_tokens)
    with count_bar("writing", "texts") as progress:
        report = run_policies(
            target,
            draft,
            policies or ["fixed"],
            [prompt.chat() for prompt in asked] if chat else asked,
            sampling=Sampling(temperature, seed=seed),
            max_tokens=max_tokens,
            turns=turns,
            until_apart=until_apart,
            costs=measured,
            check=check,
            threads=threads,
            progress=progress,
        )
    result = report.to_json()
    if measured is not None:
        result["foretold"] = [foretold.to_json() for foretold in report.foretold(recorded)]
    show(result, json, _print_run, keep=True)


def _print_run(result: dict[str, Any]) -> None:
    print_table(
        ["policy", "tokens/s", "spread", "times as fast", "95 %", "tokens a round", "drafted", "accepted %",
         "policy/draft %"],
        [
            [
                row["policy"],
                f"{row['tokens_per_second']:.1f}",
                f"{row['low']:.1f}..{row['high']:.1f}",
                f"{row['ratio']:.2f}",
                f"{row['ratio_low']:.2f}..{row['ratio_high']:.2f}",
                number(row["tokens_per_round"], ".2f"),
                f"{row['drafted']:,}",
                number(None if row["acceptance"] is None else 100 * row["acceptance"], ".1f"),
                number(None if row["policy_share"] is None else 100 * row["policy_share"], ".2f"),
            ]
            for row in result["policies"]
        ],
        title=f"{result['prompts']} texts of at most {result['max_tokens']} tokens, {result['turns']} turns",
    )  # fmt: skip
    print(f"the fastest is {'' if result['apart'] else 'not '}faster than the next one beyond chance")
    if "foretold" in result:
        _print_foretold(result["foretold"])
    for row in result["policies"]:
        if "flips" in row:
            print(f"{row['policy']}: {_flips(row['flips'])}")


def _print_foretold(foretold: list[dict[str, Any]]) -> None:
    names = ("by_costs", "replayed", "predicted")
    print_table(
        ["policy", "ms/token", "by costs", "replayed", "by acceptance"],
        [
            [row["policy"] or "no draft", f"{row['measured']:.3f}"]
            + [_beside(row[name], row["measured"]) for name in names]
            for row in foretold
        ],
        title="Measured behind each text's first round, and foretold",
    )


def _beside(foretold: float | None, measured: float) -> str:
    return "-" if foretold is None else f"{foretold:.3f} ({100 * (foretold / measured - 1):+.1f} %)"


def _flips(of_texts: list[list[dict[str, Any]]]) -> str:
    first = [(i, flips[0]) for i, flips in enumerate(of_texts) if flips]
    n = sum(map(len, of_texts))
    if not first:
        return f"all {len(of_texts)} texts are the target's own, token for token"
    places = "; ".join(
        f"text {i} at token {flip['position']}, by {flip['gap']:.2g} of the logits" for i, flip in first
    )
    return f"{n} {'flip' if n == 1 else 'flips'} in {len(first)} of {len(of_texts)} texts, first: {places}"
