"""Vocabularies without byte tokens, with unknown tokens, with ends that are added."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, TokenType

from pyquant import data
from pyquant.data.generated import GeneratedModel
from pyquant.errors import ModelFileError, TextError
from pyquant.generation.grammar.engine import allowed_tokens
from pyquant.generation.grammar.engines import ENGINES, compile_for
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.sampling.prompt import Prompt
from pyquant.llama.model import Model
from tests.support.command import run

LETTERS = string.ascii_uppercase[:20]
TOKENS = {
    "<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL, "▁": TokenType.NORMAL,
    **dict.fromkeys(LETTERS, TokenType.NORMAL),
    "<x>": TokenType.UNKNOWN, "<y>": TokenType.CONTROL, "<z>": TokenType.USER_DEFINED,
    "Z": TokenType.UNUSED,
}  # fmt: skip
SHAPE = {"n_embd": 32, "n_ff": 32, "n_layer": 1, "n_head": 2, "n_head_kv": 2, "tied": True}


@dataclass(frozen=True)
class Letters(GeneratedModel):
    """A model whose vocabulary is 20 letters, none of single bytes, and a token of each other type."""

    adds_end: bool = False
    sort: str = "llama"

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model(self.sort)
        writer.add_token_list(list(TOKENS))
        writer.add_token_scores([-float(i) for i in range(len(TOKENS))])
        writer.add_token_types(list(TOKENS.values()))
        if self.sort == "llama":
            writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(self.adds_end)
        writer.add_add_space_prefix(False)


@contextmanager
def letters(folder: Path, *, adds_end: bool = False, sort: str = "llama") -> Iterator[Model]:
    path = folder / "letters.gguf"
    Letters(**SHAPE, n_vocab=len(TOKENS), adds_end=adds_end, sort=sort).write(path)
    with Model(path) as model:
        yield model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with letters(tmp_path_factory.mktemp("letters")) as model:
        yield model


def numbers(*names: str) -> list[int]:
    return [list(TOKENS).index(name) for name in names]


def test_a_character_without_a_token_is_named(model: Model) -> None:
    """llama.cpp issue 11729: llama_tokenize throws std::out_of_range through its C interface."""
    for text, named in (("ACxD", "'x'"), ("é", "'é'"), ("A\n", r"'\\n'")):
        with pytest.raises(TextError, match=f"letters.gguf: its vocabulary has no token for {named}"):
            model.vocabulary.tokenize(text.encode())
    assert model.vocabulary.tokenize(b"ACD").tolist() == [1, *numbers("A", "C", "D")]


def test_a_blank_before_texts_is_named(tmp_path: Path) -> None:
    class Blank(Letters):
        def add_tokenizer(self, writer: GGUFWriter) -> None:
            super().add_tokenizer(writer)
            writer.kv_data[0]["tokenizer.ggml.add_space_prefix"].value = True
            writer.kv_data[0]["tokenizer.ggml.tokens"].value[3] = "!"

    path = Blank(**SHAPE, n_vocab=len(TOKENS)).write(tmp_path / "blank.gguf")
    with Model(path) as model, pytest.raises(TextError, match="no token for the blank that it puts before"):
        model.vocabulary.tokenize(b"A")


@pytest.mark.ci
def test_the_command_ends_in_a_line(tmp_path: Path) -> None:
    with letters(tmp_path) as model:
        refused = run("generate", model.path, "-p", "xyz")
        assert refused.returncode in (1, 2)
        assert refused.stderr.count("\n") == 1
        assert "no token for 'x'" in refused.stderr
        kept = run("generate", model.path, "-p", "ACD", "--regex", "[ACDE]{3}")
        assert kept.returncode == 0
        assert len(kept.stdout) == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_masks_have_tokens_that_print_what_they_spell(engine: str, model: Model) -> None:
    """text-generation issues: Phi-3 has 53 tokens of type unknown; llama.cpp issue 6923: control tokens."""
    every = {
        "llguidance": Grammar(Language.REGEX, "[A-Za-z<>/ ]{4}"),
        "gbnf": Grammar(Language.GBNF, "root ::= [A-Za-z<>/ ] [A-Za-z<>/ ] [A-Za-z<>/ ] [A-Za-z<>/ ]"),
        "lr": Grammar(Language.LARK, "start: /[A-Za-z<>\\/ ]{4}/"),
    }
    compiled = compile_for(model.vocabulary, every[engine], engine)
    words = np.empty(compiled.n_words, np.int32)
    state = compiled.start()
    state.mask(words)
    allowed = np.flatnonzero(allowed_tokens(words, len(TOKENS))).tolist()
    assert allowed == sorted(numbers("▁", *LETTERS, "<z>"))
    assert [token for token in range(len(TOKENS)) if state.allows(token)] == allowed


@pytest.mark.parametrize(("named", "token"), [("<y>", "<y>"), ("<[25]>", "<y>"), ("<x>", "<x>")])
def test_gbnf_names_tokens(named: str, token: str, model: Model) -> None:
    """A token that prints nothing comes where the grammar names it, and nowhere else."""
    text = f'root ::= "A" {named} [BC] # "<s>" <s>\n'
    state = compile_for(model.vocabulary, Grammar(Language.GBNF, text, "g")).start()
    expected = [numbers("A"), numbers(token), numbers("B", "C"), numbers("</s>")]
    for allowed in expected:
        assert [i for i in range(len(TOKENS)) if state.allows(i)] == allowed
        if allowed != numbers("</s>"):
            state.advance(allowed[0])
    assert state.must_end


def test_an_end_that_the_vocabulary_adds_does_not_end_the_prompt(tmp_path: Path) -> None:
    """llama.cpp issue 8990."""
    with letters(tmp_path, adds_end=True) as model:
        assert model.vocabulary.tokenize(b"AC").tolist() == [1, *numbers("A", "C"), 2]
        assert Prompt("AC").tokens(model).tolist() == [1, *numbers("A", "C")]
        assert Prompt("AC</s>").tokens(model).tolist() == [1, *numbers("A", "C"), 2]  # as it was asked


def test_a_begin_that_is_no_token_is_refused(tmp_path: Path) -> None:
    """llama.cpp asserts that there is one, which ends the process."""
    with (
        letters(tmp_path, sort="t5") as model,
        pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.bos_token_id names no token"),
    ):
        model.vocabulary.tokenize(b"A")


def test_where_bytes_are_forced_every_token_that_begins_them_may_come() -> None:
    """llguidance issue 263: after `# The month is ` the token `t` has .132 of what is allowed of `test`."""
    with Model(data.model_path()) as model:
        compiled = compile_for(model.vocabulary, Grammar(Language.REGEX, "test"))
        words = np.empty(compiled.n_words, np.int32)
        compiled.start().mask(words)
        allowed = np.flatnonzero(allowed_tokens(words, model.n_vocab))
        assert {model.vocabulary.pieces()[token] for token in allowed} == {b"t", b"te", b"tes", b"test"}
