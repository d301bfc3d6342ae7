"""Options of commands that let models write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant import limits
from pyquant.cli import paths
from pyquant.cli.number import Number


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
    help='A JSON object in each line: {"prompt": TEXT} or {"messages": [{"role", "content"}]}.',
)
PromptsFile = Annotated[Path, PROMPTS]
Chat = Annotated[bool, typer.Option("--chat", help="Ask by the model's chat template, and let it answer.")]
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
