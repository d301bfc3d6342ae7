"""Policy `auto`: what a token is expected to bring beside what it takes, both learned while it is used."""

from __future__ import annotations

from math import prod

from pyquant.generation.speculative.policies.policy import MOST, Decision, Family, Round

FREE = 0.02  # of a token without a draft: seconds of a draft token below which asking for it costs nothing
BEGIN = 2  # rounds without a draft at first, which tell what drafting saves
AGAIN = 32  # rounds with a draft behind which one without is measured again
TRIAL = 0.005  # of the tokens since the last draft: what trying one again may be expected to lose
AHEAD = 16  # tokens that are looked ahead


def auto(round: Round, *, most: int) -> Decision:
    """Draft while a further token is expected to bring more than its seconds are worth.

    A token counts if all before it are accepted. A second is worth the tokens that a second brought lately,
    and no less than what the target brings alone. Where no length is expected to pay, drafting is tried
    again once what that is expected to lose is little beside the tokens since the last time. Where asking the
    draft takes next to nothing, as with n-grams, it is always asked, and what it looked up decides.
    """
    costs, rates, n = round.learned.costs, round.learned.rates, len(round.drafted)
    alone, may_lose = costs.alone.seconds, TRIAL * costs.since_draft
    if not n and (costs.alone.n < BEGIN or costs.since_alone >= AGAIN):
        return Decision.STOP
    two, slope = costs.line()
    worth, further = max(costs.rate, 1 / alone), costs.of_further + slope
    if not n:
        if costs.of_first < FREE * alone:
            return Decision.MORE
        gain, brought = _best(rates.lately, rates.lately, costs.of_first + two - alone, further, worth)
        reading = worth * costs.of_reading(round.unread)
        pays = gain * round.room / (1 + brought) > reading
        tried = gain - reading + may_lose > 0 or costs.saved > reading
        return Decision.MORE if pays or tried else Decision.STOP
    all_accepted, behind = prod(map(rates.of, round.drafted)), rates.behind(round.drafted[-1])
    if n == 1 and _best(all_accepted, behind, two - alone, further, worth)[0] + may_lose <= 0:
        return Decision.DROP
    if (
        n < min(most, rates.longest)
        and all_accepted * behind > worth * further
        and (n < 2 or costs.further.n)
    ):
        return Decision.MORE
    return Decision.DROP if n > 1 and all_accepted < worth * slope else Decision.STOP


def _best(chance: float, behind: float, first: float, further: float, worth: float) -> tuple[float, float]:
    """Return tokens that the best length brings beyond the worth of its seconds, and tokens that it brings.

    chance: of the first token, behind: of each further one. first, further: their seconds.
    """
    brought, gain = chance, chance - worth * first
    for _ in range(AHEAD):
        chance *= behind
        if chance <= worth * further:
            break
        brought, gain = brought + chance, gain + chance - worth * further
    return gain, brought


AUTO = Family(auto, {"most": MOST})
