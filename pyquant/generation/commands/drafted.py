"""`pyquant generate --draft`: texts that a target writes with a draft."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pyquant.cli import paths
from pyquant.cli.output import remark, size
from pyquant.cli.streams import hear_loggers
from pyquant.errors import ConfigError
from pyquant.generation.commands.live import SCHEMA, print_live

if TYPE_CHECKING:
    from pyquant.generation.grammar.engine import Compiled
    from pyquant.generation.sampling.prompt import Prompt
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.generation.speculative.policies.costs import Costs
    from pyquant.generation.speculative.policies.policy import Policy
    from pyquant.generation.speculative.write.result import DraftedText
    from pyquant.llama.vocabulary import Vocabulary

# Compiles the grammar that texts keep to for a vocabulary; to None without one.
Compile = Callable[["Vocabulary"], "Compiled | None"]

DraftModel = Annotated[
    str,
    typer.Argument(
        metavar="DRAFT.gguf|ngram",
        parser=paths.source_or_word,
        help="Cheaper model with the same vocabulary, or ngram: look up what was written.",
    ),
]


class Drafting(NamedTuple):
    """A draft, what decides how far it goes, and how that was given."""

    draft: str
    policy: Policy
    text: str
    costs: Costs | None


def setting(
    draft: str | None, policy: str | None, costs: Path | None, parallel: int | None, exact: bool
) -> Drafting | None:
    """Returns what the options ask for; None without a draft. Raises ConfigError."""
    from pyquant.generation.speculative.policies import make_policy
    from pyquant.generation.speculative.policies.costs import read_costs

    if draft is None:
        if policy is not None or costs is not None:
            raise ConfigError("generate: --policy and --costs need --draft")
        return None
    if exact or (parallel or 1) > 1:
        raise ConfigError("generate: --draft writes one text at a time: give neither --exact nor --parallel")
    text, measured = policy or "fixed", read_costs(costs) if costs is not None else None
    return Drafting(draft, make_policy(text, measured), text, measured)


def write(
    path: Path,
    prompts: list[Prompt],
    sampling: Sampling,
    room: dict[str, Any],
    compile_form: Compile,
    drafting: Drafting,
    threads: int | None,
    as_json: bool,
) -> None:
    """Writes the texts of one target, and says what drafting brought."""
    from pyquant.generation.sampling.generate import make_plan
    from pyquant.generation.sampling.session import Session
    from pyquant.generation.speculative.write.pair import check_both, open_draft
    from pyquant.generation.speculative.write.speculate import Speculation
    from pyquant.llama.model import Model

    hear_loggers()
    draft = drafting.draft
    n_ctx = room["n_ctx"] or room["max_tokens"]
    check_both(path, draft, n_ctx, drafting.costs)
    say_pair(path, draft, n_ctx)
    with Model(path) as model:
        compiled = compile_form(model.vocabulary)
        plan = make_plan(model, prompts, **room | {"n_parallel": 1})
        live = plan.n_texts == 1 and not as_json and not plan.stops and sys.stdout.isatty()
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=threads) as session,
            open_draft(draft, session, sampling, threads=threads) as its_draft,
        ):
            if its_draft.takes:
                remark(f"{Path(draft).name} takes over keys and values of {model.path.name}")
            writer = Speculation(session, its_draft, sampling, drafting.policy, grammar=compiled)
            for text in writer.texts(plan, print_live() if live else None):
                if as_json:
                    line = {"schema": SCHEMA, "model": str(path), "draft": draft, "policy": drafting.text}
                    print(json_module.dumps(line | text.to_json()), flush=True)
                else:
                    print("" if live else text.sample.text, flush=True)
                _say_gain(text)


def say_pair(target: Path, draft: str | Path, n_ctx: int) -> None:
    """Says before they are loaded how large both models are, and what is odd about them."""
    from pyquant.generation.speculative.write.pair import NGRAM, draft_ctx, size_of
    from pyquant.models.model_file import open_model

    if draft == NGRAM:
        return
    files = [open_model(target), open_model(draft)]
    sizes = [size_of(file, n_ctx) for file in files]
    for file, its_size in zip(files, sizes):
        weights, cache = size(its_size.weights), size(its_size.cache)
        remark(f"{file.path.name}: {weights} of weights, at least {cache} for a text")
    if sizes[1].weights > sizes[0].weights:
        remark(f"{files[1].path.name} is larger than its target: a draft that takes as long does not pay")
    if (shorter := draft_ctx(target, draft)) is not None:
        remark(
            f"{files[1].path.name} was trained with {shorter:,} tokens of context, its target with more: "
            f"beyond them it drafts nothing"
        )


def _say_gain(text: DraftedText) -> None:
    if not text.rounds:
        return
    accepted = "none" if text.acceptance is None else f"{100 * text.acceptance:.0f} %"
    remark(
        f"{text.sample.name}: {text.n_tokens:,} tokens in {text.seconds:.1f} s: "
        f"{text.n_tokens / text.seconds:.1f} tokens/s; {text.tokens_per_round:.2f} tokens a round; "
        f"{text.n_drafted:,} drafted, of which accepted: {accepted}"
    )
