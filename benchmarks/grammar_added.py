"""`python -m benchmarks added`: what a grammar adds to a token beside the forward pass.

A real text is followed. Where a model would compute, as much memory as a small one has is read: that
empties the CPU's caches. Logits are made up, as there is no model of most vocabularies: the text's
next token has 0.4 of the probability, tokens that the grammar refuses have 0.05, and others the rest.
SmolLM2 gives them 0.02 along the text of C, 0.05 along SQL and 0.04 along JSON. The CPU time of the
thread that writes is measured, with a grammar and without one, in turns. The least of a place's rounds
counts: what else the machine does only adds to it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.grammar import CASES, TEXTS, VOCABULARIES, Case, first_file, only_vocabulary
from pyquant.generation.grammar.engine import Compiled, allowed_tokens, kernel_state
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import GRAMMARS, read_grammar
from pyquant.generation.sampling.choose import Chooser
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.vocabulary import Vocabulary

NAMES = ("C", "SQL", "JSON")
SETTINGS = {
    "all tokens": Sampling(temperature=1, top_k=0, top_p=1, min_p=0),
    "top-k 40, top-p 0.95": Sampling(temperature=1, top_k=40, top_p=0.95, min_p=0),
}
MEMORY = 1 << 25  # bytes that a forward pass reads
NEXT, REFUSED = 0.4, 0.05  # of the probability
SPREAD = 3.0  # of logits
MOST_PLACES = 400


def added(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure for each vocabulary, grammar and way to draw; the last result is the mean of these."""
    results = []
    for name, pattern in VOCABULARIES.items():
        if (path := first_file(pattern)) is None:
            print(f"{name}: no {pattern}", file=sys.stderr)
            continue
        with only_vocabulary(path) as vocabulary:
            for case in CASES:
                if case.name in NAMES:
                    print(f"{name}, {case.name} ...", file=sys.stderr)
                    results += _measure(vocabulary, name, case, arguments.rounds)
    return [*results, mean(results)] if results else []


def mean(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of results, as one more of them."""
    figures = {key: statistics.fmean(result[key] for result in results) for key in ("seconds", "added_us")}
    return {"command": f"mean of {len(results)}", **figures}


def _measure(vocabulary: Vocabulary, name: str, case: Case, rounds: int) -> list[dict[str, Any]]:
    compiled = make_engine("lr", vocabulary).compile(read_grammar(GRAMMARS / case.grammar))
    tokens = vocabulary.tokenize((TEXTS / case.text).read_bytes().strip(), ends=False)[:MOST_PLACES]
    results = []
    for settings, sampling in SETTINGS.items():
        times: dict[bool, list[list[float]]] = {True: [], False: []}
        for _ in range(rounds):
            for masked in times:
                times[masked].append(_follow(sampling, compiled, tokens, vocabulary.n_tokens, masked))
        least = {masked: statistics.fmean(map(min, zip(*turns))) for masked, turns in times.items()}
        results.append(
            {
                "command": f"{name}, {case.name}, {settings}",
                "seconds": least[False],
                "added_us": 1e6 * (least[True] - least[False]),
            }
        )
    return results


def _follow(
    sampling: Sampling, grammar: Compiled, tokens: NDArray[np.int32], n_vocab: int, masked: bool
) -> list[float]:
    """Return the seconds that each token takes beside the forward pass."""
    seconds = []
    random = np.random.default_rng(0).normal(0, SPREAD, n_vocab).astype(np.float32)
    memory, words = np.ones(MEMORY // 8), np.empty(grammar.n_words, np.int32)
    state = grammar.start()
    with Chooser(sampling, [grammar] if masked else None, 1) as chooser:
        text = chooser.begin(Sample(0, "", 0))
        for token in tokens.tolist():
            state.mask(words)
            logits = logits_like(random, allowed_tokens(words, n_vocab), token)
            begin = time.thread_time()
            chooser.prepare([text])
            seconds.append(time.thread_time() - begin)
            memory.sum()
            begin = time.thread_time()
            drawn = chooser.choose([text], logits)
            seconds[-1] += time.thread_time() - begin
            if masked and drawn.tokens[0] != token:  # the text's own token is drawn in its place, not timed
                text.kernel = kernel_state(state.copy())
                chooser.choose([text], certain(token, n_vocab))
            state.advance(token)
            text.sample.tokens.append(token)
    return seconds


def certain(token: int, n_vocab: int) -> NDArray[np.float32]:
    """(1, n_vocab) float32, of which all probability is one token's."""
    logits = np.full((1, n_vocab), -20, np.float32)
    logits[0, token] = 0
    return logits


def logits_like(random: NDArray[np.float32], allowed: NDArray[np.bool_], token: int) -> NDArray[np.float32]:
    """(1, n_vocab) float32, of which the next token and refused ones have the shares that they should."""
    weights = np.exp(random)
    refused = float(weights[~allowed].sum())
    others = float(weights[allowed].sum() - weights[token])
    share = REFUSED if refused else 0.0
    logits = random + np.where(
        allowed,
        np.float32(np.log((1 - NEXT - share) / others) if others > 0 else 0),
        np.float32(np.log(share / refused) if refused else 0),
    )
    logits[token] = np.log(NEXT)
    return logits[None]
