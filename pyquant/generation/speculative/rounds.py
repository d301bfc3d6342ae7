"""The one loop of speculative decoding: draft as far as a policy wants, and verify.

Completions are generated in it (`decoding.speculate`), and a record is replayed in it (`replay.replay`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from pyquant.generation.speculative.policies.certainty import Certainty
from pyquant.generation.speculative.policies.learned import Learned
from pyquant.generation.speculative.policies.online_costs import Spent
from pyquant.generation.speculative.policies.policy import LONGEST, Decision, History, Policy, Round


class Played(NamedTuple):
    """A round: tokens that the draft computed, of them those that were verified and accepted, and seconds."""

    calls: int
    drafted: int
    accepted: int
    seconds: float


class Completion(Protocol):
    """A completion that grows by rounds.

    Attributes
    ----------
    reads : bool
        Whether the draft reads all tokens itself.
    unread : int
        Tokens that the draft has to read before its first one.
    drops : bool
        Whether a policy may drop a token for what it is.
    done, goes_on : bool
        Whether it is complete, and whether another token can be drafted in this round.
    room : int
        Tokens that it may still have.
    """

    reads: bool
    unread: int
    drops: bool

    @property
    def done(self) -> bool: ...
    @property
    def room(self) -> int: ...
    @property
    def goes_on(self) -> bool: ...

    def propose(self) -> Certainty | None:
        """Draft the next token; None where the draft has nothing to say."""

    def drop(self) -> None:
        """Take the last drafted token back."""

    def verify(self) -> tuple[int, Spent]:
        """Verify what was drafted; return how many tokens are accepted, and the seconds of the round."""


def play(completion: Completion, policy: Policy, learned: Learned) -> Iterator[Played]:
    """Let a completion grow until it is whole, and yield each round.

    It is behind its first token, which comes from the prompt's pass. What is learned is from all completions
    of the run; each round is entered.
    """
    history, unread = History(), completion.unread
    while not completion.done:
        known = Round(previous=history, unread=unread, room=completion.room, learned=learned)
        n_dropped = 0
        while len(known.drafted) < LONGEST and completion.goes_on:
            decision = policy(known)
            if decision is Decision.DROP and known.drafted and completion.drops:
                completion.drop()
                n_dropped = 1
            if decision is not Decision.MORE or (sure := completion.propose()) is None:
                break
            known.drafted.append(sure)
        n_calls = len(known.drafted)
        n_accepted, spent = completion.verify()
        n_verified = n_calls - n_dropped
        history.append((n_verified, n_accepted))
        learned.add(known.drafted, n_verified, n_accepted, unread, spent)
        unread = 1 if n_calls or not completion.reads else unread + 1
        yield Played(n_calls, n_verified, n_accepted, spent.total)
