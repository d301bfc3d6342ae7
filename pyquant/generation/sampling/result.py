"""Results of generation: what a model wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Reasons for the end of a text.
END = "end"  # the model ended it
LENGTH = "length"  # it has as many tokens as were allowed
CONTEXT = "context"  # there is no room for more
DEAD_END = "dead end"  # no token of the vocabulary can follow in the grammar
REFUSED = "refused"  # as many attempts as were allowed, and none kept to the grammar


@dataclass
class Times:
    """Seconds of writing, by what they are spent on, over all texts.

    Attributes
    ----------
    forward
        Computing the model.
    mask
        Making masks; where they come before a draw, that is beside the forward pass.
    sampling
        Drawing tokens.
    """

    forward: float = 0.0
    mask: float = 0.0
    sampling: float = 0.0


@dataclass
class Sample:
    """A text that a model wrote, or is writing.

    Attributes
    ----------
    prompt : int
        Index of its prompt.
    name : str
        The prompt's name.
    number : int
        Which of the prompt's samples it is; with the seed it decides the random numbers.
    tokens : list of int
        Without the token that ended it.
    log_p : list of float
        Of each token, among all at temperature 1, in nats; that of the ending token too.
    allowed : list of float
        Where it was measured: the share of all tokens' probability that the grammar left, for each token.
    data : bytes
        The tokens' bytes; the last ones may be part of a character.
    finish : str
        "end", "length", "context", "dead end" or "refused"; "" while it is being written.
    attempts : int
        Where a text is drawn exactly, texts that were begun, up to the one that was accepted; else 0.
    n_run : int
        Tokens that the model computed for these attempts.
    """

    prompt: int
    name: str
    number: int
    tokens: list[int] = field(default_factory=list)
    log_p: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)
    data: bytes = b""
    finish: str = ""
    attempts: int = 0
    n_run: int = 0

    @property
    def text(self) -> str:
        """The bytes as text; what is no UTF-8 is replaced."""
        return self.data.decode(errors="replace")

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant generate --json` prints each of its lines."""
        allowed = {"allowed": self.allowed} if self.allowed else {}
        exact = {"attempts": self.attempts, "n_run": self.n_run} if self.attempts else {}
        return {
            "prompt": self.name,
            "sample": self.number,
            "text": self.text,
            "tokens": self.tokens,
            "finish": self.finish,
            "log_p": sum(self.log_p),
            **allowed,
            **exact,
        }
