"""Options of commands that generate, as groups that stand together in the help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Optional

import typer

from pyquant import limits
from pyquant.cli import paths
from pyquant.cli.number import Number, number_option
from pyquant.cli.panels import EXPERT
from pyquant.errors import ConfigError

if TYPE_CHECKING:
    from pyquant.generation.grammar.engine import Compiled
    from pyquant.generation.grammar.grammar import Grammar
    from pyquant.generation.sampling.penalties import Penalties
    from pyquant.generation.sampling.prompt import Prompt
    from pyquant.generation.sampling.sampling import Sampling as Sampler
    from pyquant.llama.vocabulary import Vocabulary

# Compiles the grammar that completions keep to for a vocabulary; to None without one.
Compile = Callable[["Vocabulary"], "Compiled | None"]


def models(more: str = "") -> Any:
    """Models that generate, with more to say of them."""
    text = f"GGUFs of any types, or pqz files{more}."
    return typer.Argument(metavar="MODEL.gguf", parser=paths.source, help=text)


def samples(text: str) -> Any:
    """How many completions, and of what."""
    return typer.Option("-n", "--samples", metavar="N", parser=Number(limits.SAMPLES), help=text)


PROMPTS = typer.Option(
    "--prompts",
    metavar="FILE.jsonl",
    parser=paths.source,
    help='A JSON object in each line: {"prompt": TEXT} or {"messages": [{"role", "content"}], "tools"}.',
)
PromptsFile = Annotated[Path, PROMPTS]
Chat = Annotated[bool, typer.Option("--chat", help="Ask by the model's chat template, and let it answer.")]
Samples = Annotated[int, samples("Completions of each prompt.")]
MaxTokens = Annotated[
    int, typer.Option(metavar="N", parser=Number(limits.TOKENS), help="Tokens of a completion, at most.")
]
Seed = Annotated[int, number_option(limits.SEED, "N", "The same seed draws the same tokens.")]
Engine = Annotated[
    Optional[str],
    typer.Option(
        metavar="ENGINE",
        help="Mask engine: llguidance, lr (LALR(1)), or llama.cpp's gbnf; default: gbnf for FILE.gbnf, lr "
        "for bundled grammars, else llguidance.",
    ),
]
CostsFile = Annotated[
    Optional[Path],
    typer.Option(
        metavar="FILE.json",
        parser=paths.source,
        help="What `pyquant draft costs -o` wrote, for policy expected_value.",
    ),
]


@dataclass(frozen=True)
class Prompting:
    """What is continued or answered, and how long."""

    panel: ClassVar[str] = "Prompt"
    prompt: Annotated[
        Optional[str], typer.Option("--prompt", "-p", metavar="TEXT", help="Text to continue.")
    ] = None
    prompts: Annotated[Optional[Path], PROMPTS] = None
    chat: Chat = False
    system: Annotated[
        Optional[str],
        typer.Option(metavar="TEXT", help="With --chat: a system prompt, for conversations that have none."),
    ] = None
    chat_template: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.source,
            help="With --chat: a template in Jinja instead of the model's.",
        ),
    ] = None
    n: Samples = 1
    max_tokens: MaxTokens = 128
    stop: Annotated[
        Optional[list[str]],
        typer.Option(metavar="TEXT", help="End before this text, which is left out; repeatable."),
    ] = None

    def read(self) -> list[Prompt]:
        """Read the prompts. Raises ConfigError."""
        from pyquant.generation.sampling.prompt import Prompt, read_prompts
        from pyquant.llama.chat_template import read_template

        if (self.prompt is None) == (self.prompts is None):
            raise ConfigError("generate: give either --prompt TEXT or --prompts FILE.jsonl")
        given = read_prompts(self.prompts) if self.prompts is not None else [Prompt(self.prompt)]
        chats = [self.chat or prompt.text is None for prompt in given]
        if (self.system is not None or self.chat_template is not None) and not any(chats):
            raise ConfigError("generate: --system and --chat-template need --chat")
        template = read_template(self.chat_template) if self.chat_template is not None else None
        return [
            prompt.chat(system=self.system, template=template) if chat else prompt
            for prompt, chat in zip(given, chats)
        ]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    panel: ClassVar[str] = "Sampling"
    temperature: Annotated[
        float, number_option(limits.TEMPERATURE, "X", "0: always the most likely token.")
    ] = 0.8
    top_k: Annotated[Optional[int], number_option(limits.TOP_K, "N", "0: of all tokens; default: 40.")] = None
    top_p: Annotated[
        Optional[float], number_option(limits.TOP_P, "X", "1: of all tokens; default: 0.95.")
    ] = None
    min_p: Annotated[
        Optional[float], number_option(limits.MIN_P, "X", "0: of all tokens; default: 0.05.")
    ] = None
    repeat_penalty: Annotated[
        float,
        number_option(
            limits.PENALTY_REPEAT,
            "X",
            "Divides positive logits of tokens that came, and multiplies others; 1: off.",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float, number_option(limits.PENALTY, "X", "Taken from the logit of each token that came.")
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        number_option(limits.PENALTY, "X", "Taken from a token's logit for each time that it came."),
    ] = 0.0
    repeat_last_n: Annotated[
        Optional[int],
        number_option(
            limits.PENALTY_LAST,
            "N",
            f"Tokens that penalties count, the prompt's among them; 0: all; default: {limits.LAST_TOKENS}.",
        ),
    ] = None
    logit_bias: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="TOKEN+X",
            help="Added to the logit of a token, which is given by its number: 42+1.5 or 42-inf; repeatable.",
        ),
    ] = None
    seed: Seed = 0

    def chosen(self, *, exact: bool) -> Sampler:
        """Return how tokens are drawn; exactly, of all of them. Raises ConfigError."""
        from pyquant.generation.sampling.sampling import Sampling as Sampler

        of_all: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0} if exact else {}
        given = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        kept = {name: value for name, value in given.items() if value is not None}
        return Sampler(self.temperature, seed=self.seed, **{**of_all, **kept})

    def penalties(self) -> Penalties | None:
        """Return what changes logits; None if nothing does. Raises ConfigError."""
        from pyquant.generation.sampling.penalties import Penalties

        penalties = Penalties(
            _biases(self.logit_bias or []),
            self.repeat_penalty,
            self.presence_penalty,
            self.frequency_penalty,
            limits.LAST_TOKENS if self.repeat_last_n is None else self.repeat_last_n,
        )
        if penalties.off and self.repeat_last_n is not None:
            raise ConfigError("generate: --repeat-last-n needs a penalty, such as --repeat-penalty 1.1")
        return None if penalties.off else penalties


@dataclass(frozen=True)
class Form:
    """What completions keep to."""

    panel: ClassVar[str] = "Structured output"
    grammar: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE",
            parser=paths.source,
            help="Keep to a grammar: FILE.lark, FILE.gbnf, or a bundled one: json, c, sql, python, ...",
        ),
    ] = None
    json_schema: Annotated[
        Optional[Path],
        typer.Option(
            metavar="FILE.json",
            parser=paths.source,
            help="Keep to a JSON schema; patterns are those of ECMA-262.",
        ),
    ] = None
    regex: Annotated[
        Optional[str], typer.Option(metavar="REGEX", help="Keep to a regular expression, as Rust's.")
    ] = None
    engine: Engine = None
    trigger: Annotated[
        Optional[str],
        typer.Option(metavar="TEXT", help="Let the grammar begin behind this text; before it all may come."),
    ] = None
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Draw each completion of the grammar as often as the model generates it: by attempts, which "
            "learn, instead of masks; of all tokens.",
        ),
    ] = False
    attempts: Annotated[
        Optional[int],
        number_option(
            limits.ATTEMPTS,
            "N",
            f"With --exact: for a completion, at most; default: {limits.EXACT_ATTEMPTS}.",
        ),
    ] = None

    def read(self) -> Compile:
        """Read the grammar, if there is one; return what compiles it. Raises ConfigError and GrammarError."""
        grammar = self._grammar()
        if self.attempts is not None and not self.exact:
            raise ConfigError("generate: --attempts needs --exact")
        given = {"exact": self.exact or None, "trigger": self.trigger, "engine": self.engine}
        for name, value in given.items():
            if grammar is None and value is not None:
                raise ConfigError(f"generate: --{name} needs --grammar, --json-schema or --regex")

        def compile_form(vocabulary: Vocabulary) -> Compiled | None:
            from pyquant.generation.grammar.engines import compile_for

            if grammar is None:
                return None
            return compile_for(vocabulary, grammar, self.engine, trigger=self.trigger)

        return compile_form

    def _grammar(self) -> Grammar | None:
        from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar

        if sum(given is not None for given in (self.grammar, self.json_schema, self.regex)) > 1:
            raise ConfigError("generate: give one of --grammar, --json-schema and --regex")
        if self.grammar is not None:
            return read_grammar(self.grammar)
        if self.json_schema is not None:
            return read_grammar(self.json_schema, Language.JSON_SCHEMA)
        return Grammar(Language.REGEX, self.regex, "--regex") if self.regex is not None else None


@dataclass(frozen=True)
class Drafting:
    """The draft model, and how far drafts go."""

    panel: ClassVar[str] = "Speculative decoding"
    draft: Annotated[
        Optional[str],
        typer.Option(
            metavar="auto|ngram|FILE",
            parser=paths.source_or_word,
            help="Propose tokens that MODEL verifies, for the same completions in less time. auto: by MODEL "
            "in 4 bits, made once and kept in the cache; ngram: by what followed the same tokens before; "
            "FILE: by a smaller model with the same vocabulary.",
        ),
    ] = None
    policy: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME:KEY=VALUE,...",
            help="How far a draft goes: fixed:k=4, static:threshold=2, ...; default: auto, which measures "
            "what pays while it generates.",
        ),
    ] = None
    costs: CostsFile = None


@dataclass(frozen=True)
class Expert:
    """What has a good default."""

    panel: ClassVar[str] = EXPERT
    ctx: Annotated[
        Optional[int],
        number_option(
            limits.CTX,
            "TOKENS",
            "Room for a prompt and its completion; default: what they need, up to what the model was trained "
            "with.",
        ),
    ] = None
    parallel: Annotated[
        Optional[int],
        number_option(
            limits.PARALLEL,
            "N",
            "Completions that are generated side by side; default: 16, or as many as there are.",
        ),
    ] = None


def _biases(given: list[str]) -> dict[int, float]:
    """Read biases of tokens. Raises ConfigError."""
    found = {}
    for text in given:
        parts = re.fullmatch(r"(\d{1,9})([+-](?:\d+(?:\.\d*)?|\.\d+|inf))", text)
        if parts is None or parts[2] == "+inf":
            raise ConfigError(f"logit-bias: {text!r}: expected a token's number and a bias: 42+1.5, 42-inf")
        found[int(parts[1])] = float(parts[2])
    return found
