"""`pyquant draft`: measure and tune speculative decoding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.groups import grouped
from pyquant.cli.number import Number
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import number, percent, print_table, show
from pyquant.cli.progress import count_bar
from pyquant.cli.single_values import Commands
from pyquant.cli.streams import hear_loggers
from pyquant.generation.commands import generation_options
from pyquant.generation.commands.speculative import AUTO, DraftModel, named_draft, say_pair

if TYPE_CHECKING:
    from pyquant.generation.sampling.prompt import Prompt

app = Commands(
    no_args_is_help=True,
    help="Measure and tune speculative decoding.",
)
Target = Annotated[
    Path,
    typer.Argument(metavar="TARGET.gguf", parser=paths.source, help="Model whose completions are wanted."),
]
Turns = Annotated[
    int,
    typer.Option(metavar="N", parser=Number(limits.ROUNDS), help="How often all is done, in turns."),
]
DEPTH = typer.Option(
    metavar="TOKENS",
    parser=Number(limits.DRAFT_DEPTH),
    help="Tokens that both models have read before: as many as completions have in the middle.",
)
TEMPERATURE = typer.Option(
    metavar="X",
    parser=Number(limits.TEMPERATURE),
    help="0: always the most likely token; else top-k 40, top-p 0.95, min-p 0.05.",
)
OUTPUT = typer.Option(
    "--output", "-o", metavar="FILE.json", parser=paths.output, help="Write the result too."
)
POLICY = "NAME:KEY=VALUE,..."
SEARCHED = typer.Option(
    metavar=POLICY, help="A rule that ends drafts; what is given is not searched; repeatable; default: all."
)
RUN = typer.Option(metavar=POLICY, help="How far drafts go; repeatable; default: auto.")
COSTS = typer.Option(metavar="COSTS.json", parser=paths.source, help="What `pyquant draft costs` measured.")
FOUND = typer.Option(
    metavar="FOUND.json",
    parser=paths.source,
    help="Also the best setting of each policy, with its predicted speed-up, of `pyquant draft search -o`.",
)
CHECK = typer.Option(
    "--check",
    help="Also read completions token by token with the target, and show where it would go on otherwise.",
)


def _asked(prompts: Path, chat: bool) -> list[Prompt]:
    from pyquant.generation.sampling.prompt import read_prompts

    asked = read_prompts(prompts)
    return [prompt.chat() for prompt in asked] if chat else asked


@app.command()
@grouped
def costs(
    *,
    target: Target,
    draft: DraftModel,
    rounds: Turns = 5,
    depth: Annotated[int, DEPTH] = limits.MEASURED_BEHIND,
    output: Annotated[Optional[Path], OUTPUT] = None,
    threads: options.Threads = None,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Time draft tokens, and passes of the target.

    Passes over 1 to 32 tokens; policy expected_value needs them.
    """
    offload.use()
    from pyquant.files.json import write_json
    from pyquant.files.output_file import check_output
    from pyquant.generation.speculative.decoding.pair import open_pair
    from pyquant.generation.speculative.measure.measure_costs import LARGEST, measure_costs
    from pyquant.models.model_file import open_model

    hear_loggers()
    file = open_model(target)
    draft = named_draft(draft, file, threads)
    if output:
        check_output(output, sources=[target, Path(draft)], force=force)
    pair = open_pair(file, draft)
    say_pair(*pair, depth + LARGEST)
    with count_bar("measuring", "turns") as progress:
        result = measure_costs(*pair, depth=depth, rounds=rounds, threads=threads, progress=progress)
    if output:
        write_json(output, result, sources=[target, Path(draft)], force=force)
    show(result, json, _print_costs, keep=True)


def _print_costs(result: dict[str, Any]) -> None:
    draft, single = result["draft"], result["alone"]["seconds"]
    timed = {"no draft: a token": result["alone"], "a draft's first token": draft}
    timed |= {"a draft's next token": draft["next"], "each token of its prompt": draft["prompt"]}
    timed |= {f"a pass over {row['tokens']}": row for row in result["verify"]}
    rows = []
    for name, row in timed.items():
        seconds, low, high = (row[key] for key in ("seconds", "low", "high"))
        spread = f"{1e3 * low:.2f}..{1e3 * high:.2f}"
        rows.append([name, f"{1e3 * seconds:.2f}", spread, f"{seconds / single:.2f}"])
    print_table(["", "ms", "ms, spread", "of no draft"], rows)


@app.command()
@grouped
def search(
    *,
    target: Target,
    draft: DraftModel,
    prompts: generation_options.PromptsFile,
    costs: Annotated[Path, COSTS],
    policy: Annotated[Optional[list[str]], SEARCHED] = None,
    chat: generation_options.Chat = False,
    n: generation_options.Samples = 1,
    max_tokens: generation_options.MaxTokens = 128,
    temperature: Annotated[float, TEMPERATURE] = 0.0,
    seed: generation_options.Seed = 0,
    output: Annotated[Optional[Path], OUTPUT] = None,
    threads: options.Threads = None,
    offload: OffloadOptions,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Find each policy's fastest parameters.

    Beside them: no draft, and the best possible.

    The target generates each completion once; what the draft proposes along it is recorded, and policies are
    replayed on that, which predicts their speed-up.
    """
    offload.use()
    from dataclasses import asdict

    from pyquant.files.json import write_json
    from pyquant.files.output_file import check_output
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.generation.speculative.decoding.pair import check_both, open_pair
    from pyquant.generation.speculative.policies import FAMILIES, read_policy
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.replay.record import make_record
    from pyquant.generation.speculative.replay.replay import NONE, ORACLE, Replay
    from pyquant.generation.speculative.replay.search import SCHEMA, search
    from pyquant.models.model_file import open_model

    hear_loggers()
    file, sources = open_model(target), [target, *([] if draft == AUTO else [Path(draft)]), prompts, costs]
    if output is not None:
        check_output(output, sources=sources, force=force)
    names = policy or list(FAMILIES)
    for name in names:
        read_policy(name)
    measured, asked, sampling = read_costs(costs), _asked(prompts, chat), Sampling(temperature, seed=seed)
    draft = named_draft(draft, file, threads)
    pair = open_pair(file, draft)
    check_both(*pair, max_tokens, measured)
    say_pair(*pair, max_tokens)
    with count_bar("recording", "completions") as progress:
        record = make_record(
            *pair, asked, sampling=sampling, n_samples=n, max_tokens=max_tokens, threads=threads,
            progress=progress,
        )  # fmt: skip
    replay, found = Replay(record, measured), {}
    for name in names:
        with count_bar(name, "settings") as progress:
            found[name] = search(replay, name, progress)
    result = {
        "schema": SCHEMA,
        "target": str(target),
        "draft": draft,
        "costs": str(costs),
        "models": measured.models,
        "texts": len(record.completions),
        "tokens": record.n_tokens,
        "acceptance": record.acceptance,
        "none": asdict(replay.run(NONE)),
        "policies": {name: asdict(its) for name, its in found.items()},
        "oracle": asdict(replay.run(ORACLE)),
    }
    if output is not None:
        write_json(output, result, sources=sources, force=force)
    show(result, json, _print_found, keep=True)


def _print_found(result: dict[str, Any]) -> None:
    print_table(
        [
            "policy",
            "ms/token",
            "predicted speed-up",
            "tokens/round",
            "acceptance rate %",
            "drafted",
            "rounds",
        ],
        [
            [
                row["policy"],
                f"{row['ms_per_token']:.3f} ± {number(row['ms_per_token_error'], '.3f')}",
                f"{row['gain']:.3f}",
                f"{row['tokens_per_round']:.2f}",
                number(row["acceptance"] and 100 * row["acceptance"], ".1f"),
                f"{row['calls']:,}",
                f"{row['rounds']:,}",
            ]
            for row in (result["none"], *result["policies"].values(), result["oracle"])
        ],
        title=f"Replayed on {result['texts']:,} completions of {result['tokens']:,} tokens",
    )
    print(f"acceptance rate of all that the draft proposes: {percent(result['acceptance'])}")


@app.command()
@grouped
def run(
    *,
    target: Target,
    draft: DraftModel,
    prompts: generation_options.PromptsFile,
    policy: Annotated[Optional[list[str]], RUN] = None,
    found: Annotated[Optional[Path], FOUND] = None,
    chat: generation_options.Chat = False,
    max_tokens: generation_options.MaxTokens = 128,
    temperature: Annotated[float, TEMPERATURE] = 0.0,
    seed: generation_options.Seed = 0,
    turns: Turns = 3,
    costs: generation_options.CostsFile = None,
    check: Annotated[bool, CHECK] = False,
    threads: options.Threads = None,
    offload: OffloadOptions,
    json: options.Json = False,
) -> None:
    """Time each policy, and no draft, on the same completions.

    In turns; tests whether the fastest is faster than the next.
    """
    offload.use()
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.generation.speculative.decoding.pair import open_pair, sha256_of
    from pyquant.generation.speculative.measure.run import are_apart, check_run, run_policies
    from pyquant.generation.speculative.policies import DEFAULT, read_policy
    from pyquant.generation.speculative.policies.costs import read_costs
    from pyquant.generation.speculative.replay.search import read_found
    from pyquant.machine.cpu import n_threads
    from pyquant.models.model_file import open_model

    hear_loggers()
    file = open_model(target)
    measured = read_costs(costs) if costs is not None else None
    asked, sampling = _asked(prompts, chat), Sampling(temperature, seed=seed)
    for name in policy or []:
        read_policy(name)
    check_run(turns, sampling, check=check)
    draft = named_draft(draft, file, threads)
    pair = open_pair(file, draft)
    replayed = read_found(found, (sha256_of(pair[0]), sha256_of(pair[1]))) if found else {}
    say_pair(*pair, max_tokens)
    with count_bar("generating", "completions") as progress:
        runs = run_policies(
            *pair, [*(policy or []), *replayed] or [DEFAULT], asked, sampling=sampling,
            max_tokens=max_tokens, turns=turns, costs=measured, check=check, threads=threads,
            progress=progress,
        )  # fmt: skip
    result = {
        "schema": "pyquant.draft.run/1",
        "target": str(target),
        "draft": draft,
        "sampling": sampling.to_json(),
        "max_tokens": max_tokens,
        "prompts": len(asked),
        "turns": turns,
        "n_threads": n_threads(threads),
        "apart": are_apart(runs),
        "policies": [run.to_json(runs[0]) | {"replayed": replayed.get(run.policy)} for run in runs],
    }
    show(result, json, _print_run, keep=True)


def _print_run(result: dict[str, Any]) -> None:
    from pyquant.generation.speculative.measure.run import FEWEST

    print_table(
        ["policy", "tokens/s", "spread", "speed-up", "95 %", "predicted", "tokens a round", "drafted",
         "acceptance rate %", "policy/draft %"],
        [
            [
                row["policy"],
                f"{row['tokens_per_second']:.1f}",
                f"{row['low']:.1f}..{row['high']:.1f}",
                f"{row['ratio']:.2f}",
                f"{number(row['ratio_low'], '.2f')}..{number(row['ratio_high'], '.2f')}",
                number(row["replayed"], ".2f"),
                number(row["tokens_per_round"], ".2f"),
                f"{row['drafted']:,}",
                number(row["acceptance"] and 100 * row["acceptance"], ".1f"),
                number(row["policy_share"] and 100 * row["policy_share"], ".2f"),
            ]
            for row in result["policies"]
        ],
        title=f"{result['prompts']} completions of at most {result['max_tokens']} tokens, "
        f"{result['turns']} turns",
    )  # fmt: skip
    if result["policies"][0]["ratio_low"] is None:
        print(f"{result['prompts']} prompts say nothing of chance; give {FEWEST} or more")
    else:
        print(f"the fastest is {'' if result['apart'] else 'not '}faster than the next one beyond chance")
    for row in result["policies"]:
        if "flips" in row:
            print(f"{row['policy']}: {_flips(row['flips'])}")


def _flips(of_completions: list[list[dict[str, Any]]]) -> str:
    first = [(i, flips[0]) for i, flips in enumerate(of_completions) if flips]
    n = sum(map(len, of_completions))
    if not first:
        return f"all {len(of_completions)} completions are the target's own, token for token"
    places = "; ".join(
        f"completion {i} at token {flip['position']}, by {flip['gap']:.2g} of the logits" for i, flip in first
    )
    of = f"{len(first)} of {len(of_completions)} completions"
    return f"{n} {'flip' if n == 1 else 'flips'} in {of}, first: {places}"
