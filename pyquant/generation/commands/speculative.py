"""`pyquant generate --draft`: speculative decoding."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pyquant.cli import paths
from pyquant.cli.output import remark, size
from pyquant.cli.progress import phases
from pyquant.cli.streams import hear_loggers
from pyquant.errors import ConfigError, PyquantError
from pyquant.generation.commands.live import SCHEMA, print_live, say_unfinished

if TYPE_CHECKING:
    from pyquant.generation.commands.generation_options import Compile, Drafting
    from pyquant.generation.sampling.prompt import Prompt
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.generation.speculative.decoding.result import DraftedCompletion
    from pyquant.generation.speculative.policies.costs import Costs
    from pyquant.generation.speculative.policies.policy import Policy
    from pyquant.models.model_file import ModelFile


AUTO = "auto"  # the draft that is made of the target
DraftModel = Annotated[
    str,
    typer.Argument(
        metavar="auto|ngram|DRAFT.gguf",
        parser=paths.source_or_word,
        help="auto: TARGET in 4 bits, kept in the cache; ngram: what followed the same tokens before; or a "
        "smaller model with the same vocabulary.",
    ),
]


class Chosen(NamedTuple):
    """A draft, the policy that decides how far it goes, and the policy's name."""

    draft: str
    policy: Policy
    text: str
    costs: Costs | None


def chosen_policy(drafting: Drafting, parallel: int | None, exact: bool) -> Chosen | None:
    """Returns what the options ask for; None without a draft. Raises ConfigError."""
    from pyquant.generation.speculative.policies import DEFAULT, FAMILIES, make_policy, read_policy
    from pyquant.generation.speculative.policies.costs import read_costs

    if drafting.draft is None:
        if drafting.policy is not None or drafting.costs is not None:
            raise ConfigError("generate: --policy and --costs need --draft")
        return None
    if exact or (parallel or 1) > 1:
        raise ConfigError(
            "generate: --draft generates one completion at a time: give neither --exact nor --parallel"
        )
    text = drafting.policy or DEFAULT
    if drafting.costs is not None and FAMILIES[read_policy(text)[0]].from_costs is None:
        raise ConfigError("generate: --costs: are of --policy expected_value, which takes times from them")
    costs = read_costs(drafting.costs) if drafting.costs is not None else None
    return Chosen(drafting.draft, make_policy(text, costs), text, costs)


def generate(
    path: Path,
    prompts: list[Prompt],
    sampling: Sampling,
    room: dict[str, Any],
    compile_form: Compile,
    chosen: Chosen,
    threads: int | None,
    as_json: bool,
) -> None:
    """Generates the completions of one target, and says what its draft brought."""
    from pyquant.generation.sampling.generate import make_plan
    from pyquant.generation.sampling.session import Session
    from pyquant.generation.speculative.decoding.pair import check_both, open_draft, open_pair
    from pyquant.generation.speculative.decoding.speculate import Speculation
    from pyquant.llama.model import Model
    from pyquant.models.model_file import open_model

    hear_loggers()
    file = open_model(path)
    draft = named_draft(chosen.draft, file, threads)
    n_ctx = room["n_ctx"] or room["max_tokens"]
    pair = open_pair(file, draft)
    check_both(*pair, n_ctx, chosen.costs)
    say_pair(*pair, n_ctx)
    with Model(pair[0]) as model:
        compiled = compile_form(model.vocabulary)
        plan = make_plan(model, prompts, **room | {"n_parallel": 1})
        live = plan.n_completions == 1 and not as_json and not plan.stops and sys.stdout.isatty()
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=threads) as session,
            open_draft(pair[1], session, sampling, threads=threads) as its_draft,
        ):
            if its_draft.takes:
                remark(f"{Path(draft).name} takes over keys and values of {model.path.name}")
            speculation = Speculation(session, its_draft, sampling, chosen.policy, grammar=compiled)
            for done in speculation.completions(plan, print_live() if live else None):
                if as_json:
                    line = {"schema": SCHEMA, "model": str(path), "draft": draft, "policy": chosen.text}
                    print(json_module.dumps(line | done.to_json()), flush=True)
                else:
                    print("" if live else done.sample.text, flush=True)
                    if compiled is not None:
                        say_unfinished(done.sample)
                _say_gain(done)


def named_draft(draft: str, target: ModelFile, threads: int | None) -> str:
    """Returns a draft; for "auto" the target's own, or n-grams where that cannot be made or kept.

    Raises ConfigError where there can be none for the target.
    """
    from pyquant.generation.speculative.decoding.pair import NGRAM, check_goes_back
    from pyquant.generation.speculative.self_draft import self_draft
    from pyquant.llama.model import Model

    if draft != AUTO:
        return draft
    with Model(target) as model:
        check_goes_back(model)
    try:
        with phases() as progress:
            return str(self_draft(target, threads=threads, progress=progress, tell=remark))
    except (PyquantError, OSError) as error:
        remark(f"--draft ngram instead of auto: {error}")
        return NGRAM


def say_pair(target: ModelFile, draft: ModelFile | str, n_ctx: int) -> None:
    """Says before they are loaded how large both models are, and what is odd about them."""
    from pyquant.generation.speculative.decoding.pair import draft_ctx, size_of

    if isinstance(draft, str):
        return
    files = [target, draft]
    sizes = [size_of(file, n_ctx) for file in files]
    for file, its_size in zip(files, sizes):
        weights, cache = size(its_size.weights), size(its_size.cache)
        remark(f"{file.path.name}: {weights} of weights, at least {cache} for a completion")
    if sizes[1].weights > sizes[0].weights:
        remark(
            f"{files[1].path.name} is larger than its target: a draft model that takes as long does not pay"
        )
    if (shorter := draft_ctx(target, draft)) is not None:
        remark(
            f"{files[1].path.name} was trained with {shorter:,} tokens of context, its target with more: "
            f"beyond them it drafts nothing"
        )


def _say_gain(done: DraftedCompletion) -> None:
    if not done.rounds:
        return
    rate = "" if done.acceptance is None else f", acceptance rate {100 * done.acceptance:.0f} %"
    remark(
        f"{done.sample.name}: {done.n_tokens:,} tokens in {done.seconds:.1f} s: "
        f"{done.n_tokens / done.seconds:.1f} tokens/s; {done.tokens_per_round:.2f} tokens a round; "
        f"{done.n_drafted:,} drafted{rate}"
    )
