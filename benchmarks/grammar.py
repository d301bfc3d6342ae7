"""Masks of grammars: engine `lr` beside llguidance and llama.cpp's own GBNF, along the same texts."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import ROOT
from pyquant.errors import GrammarError, ModelFileError
from pyquant.generation.grammar.engine import Compiled, State
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, read_grammar
from pyquant.generation.grammar.lr.lark_tables import GRAMMARS
from pyquant.llama.library import bindings
from pyquant.llama.vocabulary import Vocabulary

TEXTS = Path(__file__).parent / "texts"
ENGINES = ("lr", "llguidance", "gbnf")
MOST_SLOW_PLACES = 16  # at which engine gbnf is asked, once each: its masks take up to seconds

# llama.cpp's tree has files that are nothing but a vocabulary; `make smollm2` gets the other one.
VOCABULARIES = {
    "SmolLM2, 49 k": "models/smollm2*-f16.gguf",
    "Llama 3, 128 k": "build/vendor/llama.cpp-*/models/ggml-vocab-llama-bpe.gguf",
    "Qwen2, 152 k": "build/vendor/llama.cpp-*/models/ggml-vocab-qwen2.gguf",
    "Gemma 4, 262 k": "build/vendor/llama.cpp-*/models/ggml-vocab-gemma-4.gguf",
}
OF_LLAMA_CPP = "build/vendor/llama.cpp-*/grammars"


@dataclass(frozen=True)
class Case:
    """A grammar bundled, a text that keeps to it, and where that can be had in GBNF: a grammar for it."""

    name: str
    grammar: str
    text: str
    gbnf: str | None


CASES = (
    Case("C", "c.lark", "words.c", "benchmarks/texts/c.gbnf"),
    Case("C, any name a type", "ansi_c.lark", "words.c", None),
    Case("llama.cpp's part of C", "c.lark", "subset.c", f"{OF_LLAMA_CPP}/c.gbnf"),
    Case("SQL", "sql.lark", "queries.sql", None),
    Case("SQL in Markdown", "markdown_sql.lark", "queries.md", None),
    Case("JSON", "json.lark", "figures.json", f"{OF_LLAMA_CPP}/json.gbnf"),
    Case("arithmetic", "arithmetic.lark", "sums.txt", "benchmarks/texts/arithmetic.gbnf"),
)

# "How fast can grammar-structured generation be?", .txt 2024: in microseconds, on its author's machine.
PUBLISHED = [
    {"mean": 540, "p50": 580, "max": 1130, "grammar": "C", "vocabulary": "CodeGemma, 256 k"},
    {"mean": 440, "max": 1230, "grammar": "SQL in Markdown", "vocabulary": "a model of 350 M"},
]


def grammar(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Masks at every place of each text, engines in turns; preparing in a process of its own."""
    results = [{"engine": ".txt, 2024", "mask_us": figures} for figures in PUBLISHED]
    for name, pattern in VOCABULARIES.items():
        path = first_file(pattern)
        if path is None:
            print(f"{name}: no {pattern}", file=sys.stderr)
            continue
        with only_vocabulary(path) as vocabulary:
            for case in CASES:
                print(f"{name}, {case.name} ...", file=sys.stderr)
                results += measure(vocabulary, path, name, case, arguments.rounds)
    return results


def first_file(pattern: str) -> Path | None:
    return min(ROOT.glob(pattern), default=None)


@contextmanager
def only_vocabulary(path: Path) -> Iterator[Vocabulary]:
    """Load a model's vocabulary without its weights."""
    llama = bindings()
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    model = llama.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise ModelFileError(f"{path}: llama.cpp cannot load it")
    try:
        yield Vocabulary(llama, model, path)
    finally:
        llama.llama_model_free(model)


def measure(vocabulary: Vocabulary, path: Path, name: str, case: Case, rounds: int) -> list[dict[str, Any]]:
    files = {"lr": GRAMMARS / case.grammar, "llguidance": GRAMMARS / case.grammar}
    if case.gbnf and (file := first_file(case.gbnf)):
        files["gbnf"] = file
    compiled, results = {}, {}
    for engine, file in files.items():
        result = results[engine] = {"engine": engine, "vocabulary": name, "grammar": case.name}
        try:
            compiled[engine] = make_engine(engine, vocabulary).compile(grammar_for(engine, file))
            result |= preparation(path, engine, file)
        except GrammarError as error:
            result["refused"] = first_line(error)
    tokens = vocabulary.tokenize((TEXTS / case.text).read_bytes().strip(), ends=False).tolist()
    times = follow(compiled, tokens, -(-vocabulary.n_tokens // 32), results, rounds)
    for engine, seconds in times.items():
        microseconds = 1e6 * np.array(seconds)
        results[engine]["mask_us"] = {
            "mean": float(microseconds.mean()),
            **{f"p{q}": float(np.quantile(microseconds, q / 100)) for q in (50, 99)},
            "max": float(microseconds.max()),
            "places": len(seconds),
        }
    return list(results.values())


def follow(
    compiled: dict[str, Compiled], tokens: list[int], n_words: int, results: dict[str, Any], rounds: int
) -> dict[str, list[float]]:
    """Return by engine the median of some rounds at each place of a text; of gbnf some places, once each.

    In a round each engine follows the whole text, one after the other.
    """
    taken: dict[str, list[list[float]]] = {engine: [] for engine in compiled}
    masks: dict[str, list[bytes]] = {}
    for turn in range(rounds):
        for engine, grammar in compiled.items():
            if turn == 0 or engine != "gbnf":
                step = 1 + len(tokens) // MOST_SLOW_PLACES if engine == "gbnf" else 1
                seconds, masks[engine], refused = walk(grammar.start(), tokens, n_words, step)
                taken[engine].append(seconds)
                if refused:
                    results[engine]["refused"] = refused
    if {"lr", "llguidance"} <= set(compiled):
        pairs = zip(masks["lr"], masks["llguidance"])
        results["llguidance"]["unlike"] = sum(ours != theirs for ours, theirs in pairs)
    return {engine: [statistics.median(times) for times in zip(*turns)] for engine, turns in taken.items()}


def walk(
    state: State, tokens: list[int], n_words: int, step: int
) -> tuple[list[float], list[bytes], str | None]:
    """Make a mask at each `step`th place of a text: seconds, digests of masks, and why it ended early."""
    words, seconds, masks = np.empty(n_words, np.int32), [], []
    for place in range(len(tokens) + 1):
        if place % step == 0:
            asked = state.copy()  # llguidance remembers a mask that it has made
            begin = time.perf_counter()
            asked.mask(words)
            seconds.append(time.perf_counter() - begin)
            masks.append(hashlib.sha256(words).digest())
        if place < len(tokens):
            try:
                state.advance(tokens[place])
            except GrammarError as error:
                return seconds, masks, f"at token {place}: {first_line(error)}"
    return seconds, masks, None


def first_line(error: GrammarError) -> str:
    return str(error).splitlines()[0].removeprefix(f"{ROOT}/")


def grammar_for(engine: str, file: Path) -> Grammar:
    """Read a grammar; llguidance takes none with priorities of terminals, so it gets it without them."""
    grammar = read_grammar(file)
    if engine != "llguidance":
        return grammar
    return replace(grammar, text=re.sub(r"(?m)^([A-Z_]+)\.-?\d+:", r"\1:", grammar.text))


def preparation(path: Path, engine: str, file: Path) -> dict[str, Any]:
    """Seconds and memory that a grammar takes until masks can be made, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.grammar_preparation", str(path), engine, str(file)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def mask_table(results: list[dict[str, Any]]) -> str:
    """Write results as a table in Markdown."""
    lines = [
        "| vocabulary | grammar | engine | mean, µs | p50 | p99 | max | prepare, CPU | load, CPU | memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        figures = result.get("mask_us", {})
        row = [(result | figures).get(key, "") for key in ("vocabulary", "grammar", "engine")]
        row += [f"{figures[key]:,.0f}" if key in figures else "" for key in ("mean", "p50", "p99", "max")]
        row.append(f"{result['prepare_s']:.1f} s" if "prepare_s" in result else "")
        row.append(f"{1000 * result['load_s']:.0f} ms" if "load_s" in result else "")
        row.append(f"{result['peak_mb']:.0f} MB" if "peak_mb" in result else "")
        lines.append(f"| {' | '.join(row)} |")
    for result in results:
        where = f"{result.get('vocabulary')}, {result.get('grammar')}, {result['engine']}"
        if "refused" in result:
            lines.append(f"\n{where}: {result['refused']}")
        if result.get("unlike"):
            lines.append(f"\n{where}: masks other than those of lr at {result['unlike']} places")
    return "\n".join(lines)
