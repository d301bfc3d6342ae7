"""Replay policies on a record: what they would take, without a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant.generation.speculative.policies import FAMILIES, make_policy, policy_text
from pyquant.generation.speculative.policies.costs import MEASURE, OTHERS, Costs, check_models, unread_after
from pyquant.generation.speculative.policies.ledger import Ledger
from pyquant.generation.speculative.policies.policy import LONGEST, Decision, History, Policy, Round
from pyquant.generation.speculative.record.record import Along, Record
from pyquant.generation.speculative.replay.calibrate import calibrate

NONE, ORACLE = "none", "oracle"  # the target alone, and the least that any policy could take


@dataclass(frozen=True)
class Replayed:
    """What came of a policy on one text.

    Attributes
    ----------
    tokens : int
        Tokens of the text, but for the first one, which comes from the prompt's pass.
    rounds : int
        Passes of the target.
    calls : int
        Tokens that the draft computed.
    drafted, accepted : int
        Of them, those that were verified, and those that are in the text.
    seconds : float
    """

    tokens: int
    rounds: int
    calls: int
    drafted: int
    accepted: int
    seconds: float


@dataclass(frozen=True)
class Simulated:
    """What came of a policy on all texts of a record.

    Attributes
    ----------
    policy : str
    ms_per_token, ms_per_token_error : float
        Milliseconds, and one standard error, texts being what is drawn at random.
    gain : float
        Milliseconds of the target alone over these.
    tokens_per_round : float
    acceptance : float or None
        Accepted of verified tokens; None where nothing was drafted.
    tokens, rounds, calls, drafted, accepted : int
        Sums of what `Replayed` has.
    """

    policy: str
    ms_per_token: float
    ms_per_token_error: float
    gain: float
    tokens_per_round: float
    acceptance: float | None
    tokens: int
    rounds: int
    calls: int
    drafted: int
    accepted: int

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant draft simulate --json` prints each of its `policies`."""
        return asdict(self)


class Simulation:
    """A record and costs, on which any policy can be replayed.

    Parameters
    ----------
    record
    costs
    decides
        What policies decide by; None: the costs. They may be an earlier measurement.
    seed
        Of the random numbers that decide, where the target draws, which tokens are accepted; the same ones
        for all policies.
    other_models
        Whether costs may be of other models than the record is of: a prediction for those, if their draft is
        accepted as often.

    Raises
    ------
    ConfigError
        The costs are of other models.
    """

    def __init__(
        self,
        record: Record,
        costs: Costs,
        *,
        decides: Costs | None = None,
        seed: int = 0,
        other_models: bool = False,
    ) -> None:
        source = record.source
        if not other_models:
            check_models(costs, source.target_sha256, source.draft_sha256, "the record", MEASURE + OTHERS)
        self.record, self.costs, self._decides = record, costs, decides or costs
        numbers = np.random.default_rng(seed)
        self.accepted = [numbers.random(len(text)) < text.accepted for text in record.texts]
        # Where tokens are drawn, none is dropped for what it is: see `Speculation`.
        self._drops = record.source.temperature == 0
        self._texts = [_Text.of(text, accepted) for text, accepted in zip(record.texts, self.accepted)]

    def run(self, policy: str) -> Simulated:
        """Replay a policy by its name and parameters; "oracle" is the least that any policy could take.

        Raises
        ------
        ConfigError
        """
        if policy == ORACLE:
            return self._sum_up(policy, [_best(text, self.costs) for text in self._texts])
        decide, ledger = make_policy("fixed:k=0" if policy == NONE else policy, self._decides), Ledger()
        return self._sum_up(policy, [self._replay(text, decide, ledger) for text in self._texts])

    def rounds(self, policy: str) -> list[History]:
        """Return the rounds of each text: (drafted, accepted). Raises ConfigError."""
        decide, ledger = make_policy(policy, self._decides), Ledger()
        each = (self._rounds(text, decide, ledger) for text in self._texts)
        return [History([(n_drafted, n_accepted) for _, n_drafted, n_accepted, _ in its]) for its in each]

    def calibrated(self) -> str:
        """Return policy `expected_value` with the chances of this record's tokens."""
        says = self.record.joined("top_p") > 0
        chances = calibrate(*(self.record.joined(name)[says] for name in ("top_p", "entropy", "accepted")))
        family = FAMILIES["expected_value"].parameters
        defaults = {name: parameter.default for name, parameter in family.items()}
        return policy_text("expected_value", defaults | chances)

    def _replay(self, text: _Text, decide: Policy, ledger: Ledger) -> Replayed:
        played = list(self._rounds(text, decide, ledger))
        calls, drafted, accepted, seconds = map(sum, zip(*played)) if played else (0, 0, 0, 0.0)
        return Replayed(max(text.n - 1, 0), len(played), calls, drafted, accepted, seconds)

    def _rounds(self, text: _Text, decide: Policy, ledger: Ledger) -> Iterator[tuple[int, int, int, float]]:
        """Yield each round: tokens that the draft computes, that are verified, and accepted, and seconds.

        The first token of a text comes from the prompt's pass. A pass brings a token more than were accepted,
        so a draft leaves room for it; one that ends with the text's end needs none. What a draft takes to
        read the prompt is left out.
        """
        history = History()
        at = unread = 1
        while at < text.n:
            room = text.max_tokens - at
            known = Round(previous=history, unread=unread, room=room, ledger=ledger)
            calls = verified = 0
            most = min(LONGEST, text.n - at - (not text.ended))
            while calls < most:
                decision = decide(known)
                if decision is not Decision.MORE:
                    verified -= decision is Decision.DROP and calls > 0 and self._drops
                    break
                if text.top_p[at + calls] > 0:
                    known.entropies.append(text.entropy[at + calls])
                    known.top_p.append(text.top_p[at + calls])
                    known.token_p.append(text.token_p[at + calls])
                elif all(text.accepted[at : at + calls]):  # n-grams have nothing to say here
                    break
                else:  # behind a refused token they go on with what followed theirs
                    known.entropies.append(known.entropies[-1])
                    known.top_p.append(known.top_p[-1])
                    known.token_p.append(known.token_p[-1])
                calls += 1
                verified += 1
            accepted = 0
            while accepted < verified and text.accepted[at + accepted]:
                accepted += 1
            history.append((verified, accepted))
            seconds = self.costs.of_round(calls, verified, unread)
            ledger.add(calls, accepted + 1, seconds)
            yield calls, verified, accepted, seconds
            unread = unread_after(unread, calls, accepted)
            at += accepted + 1

    def _sum_up(self, policy: str, texts: Sequence[Replayed]) -> Simulated:
        sums = {
            name: sum(getattr(text, name) for text in texts)
            for name in ("tokens", "rounds", "calls", "drafted", "accepted")
        }
        tokens = np.array([text.tokens for text in texts], float)
        seconds = np.array([text.seconds for text in texts])
        mean = float(seconds.sum() / tokens.sum()) if tokens.sum() else 0.0
        n = len(texts)
        spread = float(((seconds - mean * tokens) ** 2).sum())
        error = math.sqrt(spread * n / (n - 1)) / float(tokens.sum()) if n > 1 and tokens.sum() else 0.0
        return Simulated(
            policy=policy,
            ms_per_token=1000 * mean,
            ms_per_token_error=1000 * error,
            gain=self.costs.alone / mean if mean else 1.0,
            tokens_per_round=sums["tokens"] / sums["rounds"] if sums["rounds"] else 0.0,
            acceptance=sums["accepted"] / sums["drafted"] if sums["drafted"] else None,
            **sums,
        )


@dataclass(frozen=True)
class _Text:
    """A text as lists, whose elements Python takes faster than those of arrays."""

    n: int
    ended: bool
    max_tokens: int
    entropy: list[float]
    top_p: list[float]
    token_p: list[float]
    accepted: list[bool]

    @classmethod
    def of(cls, text: Along, accepted: NDArray[np.bool_]) -> _Text:
        entropy, top_p, token_p = (array.tolist() for array in (text.entropy, text.top_p, text.token_p))
        return cls(len(text), text.ended, text.max_tokens, entropy, top_p, token_p, accepted.tolist())


def _best(text: _Text, costs: Costs) -> Replayed:
    """Find the drafts that take least, all acceptances being known: from the text's end to its beginning.

    A refused token is drafted too where a larger pass takes so much less time. What a draft has to read
    behind a round in which all were accepted counts for nothing here, so this is a bound from below.
    """
    of_round = np.array([costs.of_round(k) for k in range(LONGEST + 1)])
    least = np.zeros(text.n + 2)
    choice, runs = [0] * (text.n + 2), [0] * (text.n + 2)
    for at in range(text.n - 1, 0, -1):
        runs[at] = run = runs[at + 1] + 1 if text.accepted[at] else 0
        room = min(LONGEST, text.n - at - (not text.ended))
        some = min(run, room)
        taken = of_round[: room + 1].copy()
        taken[: some + 1] += least[at + 1 : at + some + 2]
        taken[some + 1 :] += least[at + some + 1]
        choice[at] = int(taken.argmin())
        least[at] = taken[choice[at]]
    rounds, drafted, accepted, at = 0, 0, 0, 1
    while at < text.n:
        of_them = min(choice[at], runs[at])
        rounds, drafted, accepted = rounds + 1, drafted + choice[at], accepted + of_them
        at += of_them + 1
    seconds = float(least[1]) if text.n > 1 else 0.0
    return Replayed(max(text.n - 1, 0), rounds, drafted, drafted, accepted, seconds)
