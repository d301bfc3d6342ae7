"""`pyquant generate`."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyquant import limits
from pyquant.cli import options
from pyquant.cli.groups import grouped
from pyquant.cli.offload import OffloadOptions
from pyquant.cli.output import remark, size
from pyquant.cli.progress import count_bar
from pyquant.cli.streams import hear_loggers
from pyquant.errors import ConfigError
from pyquant.generation.commands import generation_options, speculative
from pyquant.generation.commands.live import SCHEMA, print_live, say_unfinished

if TYPE_CHECKING:
    from pyquant.generation.commands.generation_options import Compile
    from pyquant.generation.sampling.generate import Plan
    from pyquant.generation.sampling.penalties import Penalties
    from pyquant.generation.sampling.prompt import Prompt
    from pyquant.generation.sampling.result import Sample
    from pyquant.generation.sampling.sampling import Sampling


@grouped
def generate(
    *,
    models: Annotated[list[Path], generation_options.models()],
    prompting: generation_options.Prompting,
    sampling: generation_options.Sampling,
    form: generation_options.Form,
    drafting: generation_options.Drafting,
    expert: generation_options.Expert,
    threads: options.Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print each completion as JSON, a line each.")] = False,
    offload: OffloadOptions,
) -> None:
    """Generate: continue a prompt, or answer it.

    Draws tokens as llama.cpp does by default: top-k, top-p, min-p, then temperature.
    """
    offload.use()
    compile_form, sampler, penalties = form.read(), sampling.chosen(exact=form.exact), sampling.penalties()
    prompts = prompting.read()
    if penalties is not None and (form.exact or drafting.draft is not None):
        raise ConfigError(
            "generate: penalties and --logit-bias change what is drawn from: give neither --exact nor --draft"
        )
    if form.exact and prompting.stop:
        raise ConfigError("generate: with --exact the grammar and the model end a completion: give no --stop")
    if form.exact and expert.parallel is not None:
        raise ConfigError("generate: --exact generates one completion at a time: give no --parallel")
    policy = speculative.chosen_policy(drafting, expert.parallel, form.exact)
    room = {
        "n_samples": prompting.n, "max_tokens": prompting.max_tokens, "n_parallel": expert.parallel,
        "n_ctx": expert.ctx, "stops": prompting.stop or (),
    }  # fmt: skip
    for path in models:
        if len(models) > 1 and not json:
            print(f"{path}:")
        common = path, prompts, sampler, room, compile_form
        if policy is not None:
            speculative.generate(*common, policy, threads, json)
        else:
            _generate(
                *common,
                penalties,
                (form.attempts or limits.EXACT_ATTEMPTS) if form.exact else None,
                threads,
                json,
            )


def _generate(
    path: Path,
    prompts: list[Prompt],
    sampling: Sampling,
    room: dict[str, Any],
    compile_form: Compile,
    penalties: Penalties | None,
    attempts: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    from pyquant.generation.sampling.exactly import generate_exactly
    from pyquant.generation.sampling.generate import generate, make_plan
    from pyquant.generation.sampling.result import REFUSED
    from pyquant.llama.model import Model

    hear_loggers()
    with Model(path) as model:
        compiled = compile_form(model.vocabulary)
        plan = make_plan(model, prompts, **room)
        # What may turn out to be the beginning of a stop is not shown before it is known.
        live = plan.n_completions == 1 and not as_json and not plan.stops and sys.stdout.isatty()
        live = live and attempts is None
        begin, n_tokens = time.monotonic(), 0
        if attempts is None:
            on_token = print_live() if live else None
            completions = generate(
                model, plan, sampling, grammar=compiled, penalties=penalties, threads=threads,
                on_token=on_token,
            )  # fmt: skip
        else:
            assert compiled is not None
            plan = replace(plan, n_parallel=1)
            completions = generate_exactly(
                model, plan, sampling, compiled, most_attempts=attempts, threads=threads
            )
        _say_memory(path, plan)
        bar = count_bar(path.name, "completions") if plan.n_completions > 1 else nullcontext(lambda *_: None)
        with bar as progress:
            ordered = _in_order(completions, plan.n_samples, says_which=as_json)
            for done, sample in enumerate(ordered, start=1):
                n_tokens += sample.n_run or len(sample.log_p)
                if as_json:
                    line = {"schema": SCHEMA, "model": str(path), **sample.to_json()}
                    print(json_module.dumps(line), flush=True)
                else:
                    print("" if live else sample.text, flush=True)
                if compiled is not None and not as_json:
                    say_unfinished(sample)
                if sample.finish == REFUSED:
                    spent = sample.attempts == attempts
                    hint = "--attempts allows more" if spent else "nothing of it fits in --max-tokens"
                    remark(
                        f"{sample.name}: none of {sample.attempts:,} attempts at completion {sample.number} "
                        f"kept to the grammar; {hint}"
                    )
                progress(done, plan.n_completions)
        seconds = time.monotonic() - begin
        remark(f"{path.name}: {n_tokens:,} tokens in {seconds:.1f} s: {n_tokens / seconds:.1f} tokens/s")


def _say_memory(path: Path, plan: Plan) -> None:
    from pyquant.llama.cache import cache_memory
    from pyquant.models.model_file import open_model

    file = open_model(path)
    room = size(cache_memory(file, plan.n_ctx, plan.n_sequences))
    sequences = "1 sequence" if plan.n_sequences == 1 else f"{plan.n_sequences} sequences"
    remark(f"{path.name}: {size(file.n_bytes)} of weights, {room} for {sequences} of {plan.n_ctx} tokens")


def _in_order(samples: Iterable[Sample], n_samples: int, *, says_which: bool) -> Iterator[Sample]:
    """Yields samples as they were asked for, n_samples of each prompt; those that end early wait.

    says_which: whether it is seen which one a sample is, so that none is lost where an error ends the others.
    """
    waiting: dict[tuple[int, int], Sample] = {}
    n_yielded = 0
    try:
        for sample in samples:
            waiting[sample.prompt, sample.number] = sample
            while (following := waiting.pop(divmod(n_yielded, n_samples), None)) is not None:
                yield following
                n_yielded += 1
    except (Exception, KeyboardInterrupt):
        if says_which:
            yield from (waiting[place] for place in sorted(waiting))
        raise
