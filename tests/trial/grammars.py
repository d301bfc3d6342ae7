"""Grammars and prompts, damaged: engines compile what is left of a grammar, and go some way in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from pyquant.generation.grammar.engine import Compiled, Engine
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import Grammar, Language, read_grammar
from pyquant.generation.grammar.lr.lark_tables import make_tables
from pyquant.generation.grammar.lr_engine import Lr
from pyquant.llama.model import Model
from tests.trial.mutations import Use
from tests.trial.samples import Samples

STEPS = 12  # tokens that are taken


class Uncached:
    """The engine lr without what it keeps on disk, so that each grammar is compiled."""

    def __init__(self, lr: Lr) -> None:
        self._lr = lr

    def compile(self, grammar: Grammar) -> Compiled:
        tables = make_tables(grammar)
        return self._lr._compiled(tables.arrays(), tables.start, None)


def followed(engine: str, language: Language | None = None) -> Callable[[Samples], Use]:
    """Compiles a grammar for a model's vocabulary, and takes a few tokens that its masks allow."""

    def make(samples: Samples) -> Use:
        @cache  # in the process that runs the cases: it holds a model of llama.cpp's
        def prepared() -> tuple[Model, Engine]:
            model = Model(samples.model_gguf)
            made = make_engine(engine, model.vocabulary)
            return model, Uncached(made) if isinstance(made, Lr) else made

        def use(path: Path) -> None:
            _, made = prepared()
            follow(made.compile(read_grammar(path, language)))

        return use

    return make


def follow(compiled: Compiled) -> None:
    state = compiled.start()
    words = np.zeros(compiled.n_words, np.int32)
    for step in range(STEPS):
        if state.must_end:
            break
        state.mask(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        if not len(allowed):
            break
        state.advance(int(allowed[step % len(allowed)]))
        _ = state.may_end
    state.roll_back(0)
