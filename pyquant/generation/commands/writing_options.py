"""Options of commands that let models write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import paths
from pyquant.cli.number import Number
from pyquant.errors import ConfigError


def models(more: str = "") -> Any:
    """Models that write, with more to say of them."""
    text = f"GGUFs of any types, or pqz files{more}."
    return typer.Argument(metavar="MODEL.gguf", parser=paths.source, help=text)


def samples(text: str) -> Any:
    """How many texts, and of what."""
    return typer.Option("-n", "--samples", metavar="N", parser=Number(limits.SAMPLES), help=text)


PROMPTS = typer.Option(
    "--prompts",
    metavar="FILE.jsonl",
    parser=paths.source,
    help='A JSON object in each line: {"prompt": TEXT} or {"messages": [{"role", "content"}], "tools"}.',
)
PromptsFile = Annotated[Path, PROMPTS]
Chat = Annotated[bool, typer.Option("--chat", help="Ask by the model's chat template, and let it answer.")]
SystemPrompt = Annotated[
    Optional[str],
    typer.Option(metavar="TEXT", help="With --chat: a system prompt, for conversations that have none."),
]
ChatTemplate = Annotated[
    Optional[Path],
    typer.Option(
        metavar="FILE", parser=paths.source, help="With --chat: a template in Jinja in place of the model's."
    ),
]
Trigger = Annotated[
    Optional[str],
    typer.Option(
        metavar="TEXT",
        help="Let the grammar begin behind this text; before it all may come.",
    ),
]
Stop = Annotated[
    Optional[list[str]],
    typer.Option(metavar="TEXT", help="End before this text, which is left out; may be given several times."),
]
RepeatPenalty = Annotated[
    float,
    typer.Option(
        metavar="X",
        parser=Number(limits.PENALTY_REPEAT),
        help="Divides positive logits of tokens that came, and multiplies others; 1: off.",
    ),
]
PresencePenalty = Annotated[
    float,
    typer.Option(
        metavar="X", parser=Number(limits.PENALTY), help="Taken from the logit of each token that came."
    ),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option(metavar="X", parser=Number(limits.PENALTY), help="Taken for each time that a token came."),
]
RepeatLastN = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=Number(limits.PENALTY_LAST),
        help="Tokens that penalties count, the prompt's among them; 0: all.",
    ),
]
LogitBias = Annotated[
    Optional[list[str]],
    typer.Option(
        metavar="TOKEN+X",
        help="Added to a token's logit, such as 42+1.5 or 42-inf, by its number; may be given several times.",
    ),
]
Samples = Annotated[int, samples("Texts for each prompt.")]
MaxTokens = Annotated[
    int, typer.Option(metavar="N", parser=Number(limits.TOKENS), help="Tokens of a text, at most.")
]
Draft = Annotated[
    Optional[str],
    typer.Option(
        metavar="FILE|ngram",
        parser=paths.source_or_word,
        help="Let a cheaper model with the same vocabulary write ahead, or look up what was written (ngram), "
        "and verify it: the same text in less time, one text after the other.",
    ),
]
DraftPolicy = Annotated[
    Optional[str],
    typer.Option(
        metavar="NAME:KEY=VALUE,...",
        help="With --draft: how far it goes, such as fixed:k=4 or static:threshold=2; default: fixed.",
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


def biases(given: list[str] | None) -> dict[int, float]:
    """Read biases of tokens. Raises ConfigError."""
    found = {}
    for text in given or []:
        parts = re.fullmatch(r"(\d{1,9})([+-](?:\d+(?:\.\d*)?|\.\d+|inf))", text)
        if parts is None or parts[2] == "+inf":
            raise ConfigError(f"logit-bias: {text!r}: expected a token's number and a bias: 42+1.5, 42-inf")
        found[int(parts[1])] = float(parts[2])
    return found
