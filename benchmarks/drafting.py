"""Completions with a draft, beside llama.cpp's own speculative example on the same files, in turns."""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.inputs import ORACLE, quantized
from benchmarks.timing import versus
from pyquant import data
from pyquant.generation.sampling.generate import Plan, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.sampling.session import Session
from pyquant.generation.speculative.decoding.pair import open_draft
from pyquant.generation.speculative.decoding.speculate import Speculation
from pyquant.generation.speculative.measure.measure_costs import measure_costs
from pyquant.generation.speculative.policies import make_policy
from pyquant.generation.speculative.policies.costs import costs_from
from pyquant.llama.model import Model

TOKENS = 96  # of a completion
PROMPTS = {
    "code": "import os\n\n\ndef read_lines(path):\n    ",
    "prose": "The city lies on both sides of a wide river, and ",
}
POLICIES = ("fixed:k=2", "cumulative", "expected_value")
# llama.cpp's fixed settings: tokens of a draft at most, and the least probability of one
STOCK = tuple(product((1, 2, 3, 4, 8), (0.0, 0.6)))
DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")


def drafting(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Tokens per second behind the prompt: no draft, policies, and llama.cpp's best fixed settings.

    The draft is the model itself in Q4_0, its output matrix too. llama.cpp's example is run with all of
    its settings once; the best stands for it in all rounds.
    """
    target = arguments.model or data.model_path()
    draft = arguments.folder / f"{target.stem}-draft-q4_0.gguf"
    quantized(draft, target, mode="ggml:Q4_0", pure=True)
    costs = costs_from(measure_costs(target, draft, rounds=arguments.rounds, threads=arguments.threads))
    sampling = Sampling(temperature=0)
    results = []
    with Model(target) as model:
        plan = make_plan(
            model,
            [Prompt(text, name=name) for name, text in PROMPTS.items()],
            max_tokens=TOKENS,
            n_parallel=1,
        )
        with (
            Session(model, 1, plan.n_ctx, n_views=1, threads=arguments.threads) as session,
            open_draft(draft, session, sampling, threads=arguments.threads) as its_draft,
        ):
            writers = {"no draft": Speculation(session, None, sampling, make_policy("fixed"))}
            for policy in POLICIES:
                writers[policy] = Speculation(session, its_draft, sampling, make_policy(policy, costs))
            for number, name in enumerate(PROMPTS):
                results += _of_prompt(arguments, (target, draft), plan, number, name, writers)
    return results


def _of_prompt(
    arguments: argparse.Namespace,
    pair: tuple[Path, Path],
    plan: Plan,
    number: int,
    name: str,
    writers: dict[str, Speculation],
) -> list[dict[str, Any]]:
    """Rates of all of one prompt, each round once, after a round that is not counted."""
    tried = {setting: stock(pair, PROMPTS[name], setting, arguments.threads) for setting in STOCK}
    best = max(tried, key=lambda setting: tried[setting])
    peer = f"llama.cpp, n_max {best[0]}, p_min {best[1]:g}"
    rates: dict[str, list[float]] = {way: [] for way in (*writers, peer)}
    for turn in range(arguments.rounds + 1):
        for way in rates:
            if way == peer:
                rate = stock(pair, PROMPTS[name], best, arguments.threads)
            else:
                text = writers[way].complete(plan, number)
                rate = (text.n_tokens - 1) / (text.seconds - text.prompt_seconds)
            if turn > 0:
                rates[way].append(rate)
    return [
        {"command": f"{name}: {way}", "tokens_per_second": statistics.median(found)}
        | versus(peer, found, rates[peer])
        for way, found in rates.items()
    ]


def stock(pair: tuple[Path, Path], prompt: str, setting: tuple[int, float], threads: int) -> float:
    """Tokens per second of llama.cpp's speculative example, without the prompt."""
    target, draft = pair
    command = [ORACLE / "llama-speculative-simple", "-m", target, "-md", draft, "-p", prompt, "-n", TOKENS]
    command += ["--temp", 0, "--top-k", 1, "--seed", 1, "-c", 1024, "-t", threads, "-td", threads, "-ngl", 0]
    command += [
        "--spec-draft-n-max",
        setting[0],
        "--spec-draft-p-min",
        setting[1],
        "--spec-type",
        "draft-simple",
        "-lv",
        4,
    ]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if decoded := DECODED.search(done.stdout + done.stderr):
        return int(decoded[1]) / float(decoded[2])
    raise SystemExit(f"{command[0]}: exit status {done.returncode}\n{done.stderr[-2000:]}")
