"""Results of generation: what a model generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Reasons for the end of a completion.
END = "end"  # the model ended it
LENGTH = "length"  # it has as many tokens as were allowed
CONTEXT = "context"  # there is no room for more
STOP = "stop"  # it has a text that was to stop it, which is left out
DEAD_END = "dead end"  # no token of the vocabulary can follow in the grammar
REFUSED = "refused"  # as many attempts as were allowed, and none kept to the grammar


@dataclass
class Times:
    """Seconds of generating, by what they are spent on, over all completions."""

    forward: float = 0.0  # computing the model
    mask: float = 0.0  # making masks; where they come before a draw, beside the forward pass
    sampling: float = 0.0  # drawing tokens


@dataclass
class Sample:
    """A completion that a model generated, or is generating.

    Attributes
    ----------
    prompt, name
        Index and name of its prompt.
    number
        Which of the prompt's samples it is; with the seed it decides the random numbers.
    tokens
        Without the token that ended it.
    log_p
        Of each token, among all at temperature 1, in nats; that of the ending token too.
    allowed
        Where it was measured: the share of all tokens' probability that the grammar left, for each token.
    data
        The tokens' bytes; the last ones may be part of a character.
    finish
        "end", "stop", "length", "context", "dead end" or "refused"; "" while it is being generated.
    attempts, n_run
        Where a completion is drawn exactly: completions that were begun for it, and tokens computed for them;
        else 0.
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

    def add(self, token: int, piece: bytes, stops: Sequence[bytes]) -> None:
        """Add a token and its bytes; end before the first text of `stops`, if one is there now."""
        self.tokens.append(token)
        begin = len(self.data)
        self.data += piece
        found = [self.data.find(stop, max(0, begin - len(stop) + 1)) for stop in stops]
        if places := [place for place in found if place >= 0]:
            self.data, self.finish = self.data[: min(places)], STOP

    @property
    def text(self) -> str:
        """The bytes as text; what is no UTF-8 is replaced."""
        return self.data.decode(errors="replace")

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant generate --json` prints each of its lines."""
        written = {"prompt": self.name, "sample": self.number, "text": self.text, "tokens": self.tokens}
        written |= {"finish": self.finish, "log_p": sum(self.log_p)}
        allowed = {"allowed": self.allowed} if self.allowed else {}
        exact = {"attempts": self.attempts, "n_run": self.n_run} if self.attempts else {}
        return written | allowed | exact
