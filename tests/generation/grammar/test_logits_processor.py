"""The logits processor in llama-cpp-python, with stock llama.cpp's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import pyquant.generation.grammar
from pyquant import data
from pyquant.generation.grammar.engines import make_engine
from pyquant.generation.grammar.grammar import read_grammar
from pyquant.generation.grammar.lr.lark_tables import GRAMMARS, make_tables
from pyquant.generation.sampling.generate import generate, make_plan
from pyquant.generation.sampling.prompt import Prompt
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model
from tests.generation.twins.grammar_masks import Place
from tests.support import ROOT
from tests.support.oracle import Oracle

JSON = GRAMMARS / "json.lark"
PROMPTS = ["A list of words: ", "Once upon a time"]
WRITE = """
import json, sys
from llama_cpp import Llama
from pyquant.generation.grammar import GrammarProcessor

model, grammar, engine, *prompts = sys.argv[1:]
llama = Llama(model, n_ctx=512, n_threads=1, verbose=False)
processor = GrammarProcessor(llama, grammar, engine=engine)
texts = [
    llama(prompt, max_tokens=40, temperature=0, logits_processor=[processor])["choices"][0]
    for prompt in [*prompts, prompts[0]]
]
print(json.dumps([[text["text"], text["finish_reason"]] for text in texts]))
"""


def written_in_stock_llama(oracle: Oracle, *arguments: object) -> list[tuple[str, str]]:
    environment = {**os.environ, "LLAMA_CPP_LIB_PATH": str(oracle.folder)}
    command = [sys.executable, "-c", WRITE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    texts: list[tuple[str, str]] = json.loads(done.stdout)
    return texts


@pytest.mark.oracle
@pytest.mark.parametrize("engine", ["lr", "llguidance"])
def test_in_stock_llama_cpp_python(engine: str, oracle: Oracle) -> None:
    texts = written_in_stock_llama(oracle, data.model_path(), JSON, engine, *PROMPTS)
    assert texts[2] == texts[0]  # one processor writes one text after the other
    tables = make_tables(read_grammar(JSON))
    for text, finish in texts:
        place = Place.start(tables).after(text.encode())
        assert place is not None
        assert finish in ("stop", "length")
        assert place.may_end or finish == "length"


@pytest.mark.oracle
def test_its_greedy_texts_are_those_of_generate(oracle: Oracle) -> None:
    theirs = written_in_stock_llama(oracle, data.model_path(), JSON, "lr", *PROMPTS)
    with Model(data.model_path()) as model:
        grammar = make_engine("lr", model.vocabulary).compile(read_grammar(JSON))
        for prompt, (text, _) in zip(PROMPTS, theirs):
            plan = make_plan(model, [Prompt(prompt)], max_tokens=40, n_ctx=512)
            (ours,) = generate(model, plan, Sampling(temperature=0), grammar=grammar, threads=1)
            assert ours.text == text
            assert len(text) > 0


def test_there_is_one_name() -> None:
    assert pyquant.generation.grammar.GrammarProcessor.__name__ == "GrammarProcessor"
    with pytest.raises(AttributeError, match="no attribute 'processor'"):
        pyquant.generation.grammar.processor  # noqa: B018
