"""Say what a draft gains by taking its target's keys and values, beside reading all by itself.

    python analysis/shared_cache.py TARGET DRAFT [DRAFT ...] --prompts FILE [--chat]

DRAFTs are quantizations of TARGET, FILE has prompts as `pyquant draft run` takes them. Completions are
generated with no draft, and with each draft in both ways, in turns. Prints a table of Markdown: the share of
drafted tokens that is accepted, and how many times as fast completions come as without a draft, with the
least and the most of all turns.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from pyquant.generation.sampling.generate import Plan, make_plan
from pyquant.generation.sampling.prompt import read_prompts
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.model_draft import ModelDraft
from pyquant.generation.speculative.decoding.pair import check_both
from pyquant.generation.speculative.decoding.shared_cache import suits
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.policies import make_policy
from pyquant.llama.model import Model

GREEDY = Sampling(temperature=0)


@dataclass
class Way:
    """Completions that are generated in one way: seconds of each turn, and drafted and accepted tokens."""

    writer: Speculation
    seconds: list[float] = field(default_factory=list)
    n_drafted: int = 0
    n_accepted: int = 0

    def complete(self, plan: Plan) -> None:
        """Generate all completions of a plan: a turn."""
        texts = list(self.writer.completions(plan))
        self.seconds.append(sum(text.seconds for text in texts))
        self.n_drafted += sum(text.n_drafted for text in texts)
        self.n_accepted += sum(text.n_accepted for text in texts)


def in_turns(ways: list[Way], plan: Plan, turns: int) -> None:
    """Generate a plan's completions in each way, in turns. A first turn is not counted."""
    for turn in range(turns + 1):
        for way in ways:
            way.complete(plan)
            if turn == 0:
                way.seconds.clear()
                way.n_drafted = way.n_accepted = 0


def cells(way: Way, alone: Way) -> str:
    """Return a row's cells of a way: acceptance, and times as fast as alone."""
    ratios = [a / b for a, b in zip(alone.seconds, way.seconds)]
    gain = sum(alone.seconds) / sum(way.seconds)
    accepted = way.n_accepted / max(way.n_drafted, 1)
    return f"{accepted:.2f} | {gain:.2f} ({min(ratios):.2f}..{max(ratios):.2f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("drafts", type=Path, nargs="+", metavar="DRAFT")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--chat", action="store_true", help="ask by the target's chat template")
    parser.add_argument("--policy", default="fixed:k=2")
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    prompts = read_prompts(given.prompts)
    asked = [prompt.chat() for prompt in prompts] if given.chat else prompts
    print("| draft | accepted | times as fast | accepted, with its target's | times as fast | suits |")
    print(f"|{'---|' * 6}")
    for draft in given.drafts:
        check_both(given.target, draft, given.max_tokens)
        with Model(given.target) as target, Model(draft) as its_model:
            plan = make_plan(target, asked, max_tokens=given.max_tokens, n_parallel=1)
            with (
                Session(target, 1, plan.n_ctx, n_views=1, threads=given.threads) as session,
                Session(its_model, 1, plan.n_ctx, n_views=1, threads=given.threads) as its_own,
            ):
                suited = suits(session, its_own)
                drafts = (None, ModelDraft(its_own, GREEDY), ModelDraft(its_own, GREEDY, session))
                policy = make_policy(given.policy)
                ways = [Way(Speculation(session, each, GREEDY, policy)) for each in drafts]
                in_turns(ways, plan, given.turns)
                alone, own, taken = ways
                row = f"{cells(own, alone)} | {cells(taken, alone)} | {'yes' if suited else 'no'}"
                print(f"| {draft.name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
