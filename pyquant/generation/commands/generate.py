"""`pyquant generate`."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import options, paths
from pyquant.cli.number import Number
from pyquant.cli.output import remark, size
from pyquant.cli.progress import count_bar
from pyquant.cli.streams import hear_loggers
from pyquant.errors import ConfigError
from pyquant.generation.commands import drafted, writing_options
from pyquant.generation.commands.drafted import Compile
from pyquant.generation.commands.live import SCHEMA, print_live

if TYPE_CHECKING:
    from pyquant.generation.grammar.engine import Compiled
    from pyquant.generation.grammar.grammar import Grammar
    from pyquant.generation.sampling.generate import Plan
    from pyquant.generation.sampling.penalties import Penalties
    from pyquant.generation.sampling.prompt import Prompt
    from pyquant.generation.sampling.result import Sample
    from pyquant.generation.sampling.sampling import Sampling
    from pyquant.llama.vocabulary import Vocabulary


def generate(
    models: Annotated[list[Path], writing_options.models()],
    prompt: Annotated[
        Optional[str], typer.Option("--prompt", "-p", metavar="TEXT", help="Text to continue.")
    ] = None,
    prompts: Annotated[Optional[Path], writing_options.PROMPTS] = None,
    chat: writing_options.Chat = False,
    system: writing_options.SystemPrompt = None,
    chat_template: writing_options.ChatTemplate = None,
    grammar: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.source,
            help="Keep to a grammar: FILE.lark, FILE.gbnf, or one bundled: json, c, sql, python, ...",
        ),
    ] = None,
    json_schema: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE.json",
            parser=paths.source,
            help="Keep to a JSON schema; patterns are those of ECMA-262.",
        ),
    ] = None,
    regex: Annotated[
        Optional[str],
        typer.Option(metavar="REGEX", help="Keep to a regular expression, as Rust's."),
    ] = None,
    engine: options.Engine = None,
    trigger: writing_options.Trigger = None,
    n: writing_options.Samples = 1,
    max_tokens: writing_options.MaxTokens = 128,
    temperature: Annotated[
        float,
        typer.Option(metavar="X", parser=Number(limits.TEMPERATURE), help="0: always the most likely token."),
    ] = 0.8,
    top_k: Annotated[
        Optional[int],
        typer.Option(metavar="N", parser=Number(limits.TOP_K), help="0: of all tokens; default: 40."),
    ] = None,
    top_p: Annotated[
        Optional[float],
        typer.Option(metavar="X", parser=Number(limits.TOP_P), help="1: of all tokens; default: 0.95."),
    ] = None,
    min_p: Annotated[
        Optional[float],
        typer.Option(metavar="X", parser=Number(limits.MIN_P), help="0: of all tokens; default: 0.05."),
    ] = None,
    repeat_penalty: writing_options.RepeatPenalty = 1.0,
    presence_penalty: writing_options.PresencePenalty = 0.0,
    frequency_penalty: writing_options.FrequencyPenalty = 0.0,
    repeat_last_n: writing_options.RepeatLastN = 64,
    logit_bias: writing_options.LogitBias = None,
    stop: writing_options.Stop = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Write texts of the grammar as often as the model would: attempts, which learn, instead of "
            "masks; of all tokens.",
        ),
    ] = False,
    attempts: Annotated[
        int,
        typer.Option(metavar="N", parser=Number(limits.ATTEMPTS), help="With --exact: for a text, at most."),
    ] = 1000,
    draft: writing_options.Draft = None,
    policy: writing_options.DraftPolicy = None,
    costs: writing_options.CostsFile = None,
    seed: options.Seed = 0,
    ctx: Annotated[
        Optional[int],
        typer.Option(
            metavar="TOKENS",
            parser=Number(limits.CTX),
            help="Room for a prompt and its text; default: what they need, up to what the model was trained "
            "with.",
        ),
    ] = None,
    parallel: Annotated[
        Optional[int],
        typer.Option(
            metavar="N",
            parser=Number(limits.PARALLEL),
            help="Texts that are written side by side; default: 16, or as many as there are.",
        ),
    ] = None,
    threads: options.Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print each text as JSON, a line each.")] = False,
) -> None:
    """Let models write: continue a prompt, or answer it.

    Draws tokens as llama.cpp does by default: top-k, top-p, min-p, then temperature.
    """
    from pyquant.generation.sampling.penalties import Penalties
    from pyquant.generation.sampling.sampling import Sampling

    form = _grammar(grammar, json_schema, regex)
    if trigger is not None and form is None:
        raise ConfigError("generate: --trigger needs --grammar, --json-schema or --regex")
    compile_form = _compiler(form, engine, trigger)
    if exact and form is None:
        raise ConfigError("generate: --exact needs --grammar, --json-schema or --regex")
    of_all: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} if exact else {}
    given = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    kept = {name: value for name, value in given.items() if value is not None}
    sampling = Sampling(temperature, seed=seed, **{**of_all, **kept})
    asked = _prompts(prompt, prompts, chat, system, chat_template)
    biases = writing_options.biases(logit_bias)
    penalties = Penalties(biases, repeat_penalty, presence_penalty, frequency_penalty, repeat_last_n)
    if (exact or draft) and not penalties.off:
        raise ConfigError(
            "generate: penalties and --logit-bias change what is drawn from: give neither --exact nor --draft"
        )
    if exact and stop:
        raise ConfigError("generate: with --exact texts end where the grammar and the model do: no --stop")
    drafting = drafted.setting(draft, policy, costs, parallel, exact)
    room = {
        "n_samples": n, "max_tokens": max_tokens, "n_parallel": parallel, "n_ctx": ctx, "stops": stop or (),
    }  # fmt: skip
    for path in models:
        if len(models) > 1 and not json:
            print(f"{path}:")
        if drafting is not None:
            drafted.write(path, asked, sampling, room, compile_form, drafting, threads, json)
            continue
        most = attempts if exact else None
        _write(path, asked, sampling, penalties, room, compile_form, most, threads, json)


def _prompts(
    prompt: str | None, prompts: Path | None, chat: bool, system: str | None, template: Path | None
) -> list[Prompt]:
    from pyquant.generation.sampling.prompt import Prompt, read_prompts
    from pyquant.llama.chat_template import read_template

    if (prompt is None) == (prompts is None):
        raise ConfigError("generate: give either --prompt TEXT or --prompts FILE.jsonl")
    asked = read_prompts(prompts) if prompts is not None else [Prompt(prompt)]
    if not chat and all(prompt.text is not None for prompt in asked) and (system is not None or template):
        raise ConfigError("generate: --system and --chat-template need --chat")
    its = read_template(template) if template else None
    return [
        prompt.chat(system=system, template=its) if chat or prompt.text is None else prompt
        for prompt in asked
    ]


def _grammar(file: Path | None, json_schema: Path | None, regex: str | None) -> Grammar | None:
    from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar

    if sum(given is not None for given in (file, json_schema, regex)) > 1:
        raise ConfigError("generate: give one of --grammar, --json-schema and --regex")
    if file is not None:
        return read_grammar(file)
    if json_schema is not None:
        return read_grammar(json_schema, Language.JSON_SCHEMA)
    return Grammar(Language.REGEX, regex, "--regex") if regex is not None else None


def _compiler(form: Grammar | None, engine: str | None, trigger: str | None) -> Compile:
    def compile_form(vocabulary: Vocabulary) -> Compiled | None:
        from pyquant.generation.grammar.engines import compile_for

        return compile_for(vocabulary, form, engine, trigger=trigger) if form else None

    return compile_form


def _write(
    path: Path,
    prompts: list[Prompt],
    sampling: Sampling,
    penalties: Penalties,
    room: dict[str, Any],
    compile_form: Compile,
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
        # What may turn out to be the beginning of a text that stops it is not shown before it is known.
        live = plan.n_texts == 1 and not as_json and not plan.stops and sys.stdout.isatty()
        live = live and attempts is None
        begin, n_tokens = time.monotonic(), 0
        if attempts is None:
            on_token = print_live() if live else None
            texts = generate(
                model, plan, sampling, grammar=compiled, penalties=None if penalties.off else penalties,
                threads=threads, on_token=on_token,
            )  # fmt: skip
        else:
            assert compiled is not None
            plan = replace(plan, n_parallel=1)
            texts = generate_exactly(model, plan, sampling, compiled, most_attempts=attempts, threads=threads)
        _say_memory(path, plan)
        bar = count_bar(path.name, "texts") if plan.n_texts > 1 else nullcontext(lambda *_: None)
        with bar as progress:
            for done, sample in enumerate(_in_order(texts), start=1):
                n_tokens += sample.n_run or len(sample.log_p)
                if as_json:
                    line = {"schema": SCHEMA, "model": str(path), **sample.to_json()}
                    print(json_module.dumps(line), flush=True)
                else:
                    print("" if live else sample.text, flush=True)
                if sample.finish == REFUSED:
                    remark(
                        f"{sample.name}: none of {sample.attempts:,} attempts at text {sample.number} kept "
                        f"to the grammar; --attempts allows more"
                    )
                progress(done, plan.n_texts)
        seconds = time.monotonic() - begin
        remark(f"{path.name}: {n_tokens:,} tokens in {seconds:.1f} s: {n_tokens / seconds:.1f} tokens/s")


def _say_memory(path: Path, plan: Plan) -> None:
    from pyquant.llama.cache import cache_memory
    from pyquant.models.model_file import open_model

    file = open_model(path)
    room = size(cache_memory(file, plan.n_ctx, plan.n_sequences))
    sequences = "1 sequence" if plan.n_sequences == 1 else f"{plan.n_sequences} sequences"
    remark(f"{path.name}: {size(file.n_bytes)} of weights, {room} for {sequences} of {plan.n_ctx} tokens")


def _in_order(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yields samples as they were asked for; those that end early wait."""
    waiting: dict[tuple[int, int], Sample] = {}
    prompt = number = 0
    for sample in samples:
        waiting[sample.prompt, sample.number] = sample
        while (prompt, number) in waiting or (prompt + 1, 0) in waiting:
            if (prompt, number) not in waiting:
                prompt, number = prompt + 1, 0
            yield waiting.pop((prompt, number))
            number += 1
