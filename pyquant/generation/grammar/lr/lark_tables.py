"""A grammar in Lark's language as a lexer and a table of LALR(1) actions; the package lark reads it."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lark.exceptions import LarkError
from lark.grammar import NonTerminal
from lark.lexer import PatternStr, TerminalDef
from lark.load_grammar import load_grammar
from lark.parser_frontends import ParserConf
from lark.parsers.lalr_analysis import LALR_Analyzer
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import GrammarError
from pyquant.generation.grammar.bounds import MOST_RULES
from pyquant.generation.grammar.grammar import GRAMMARS, Grammar
from pyquant.generation.grammar.lr.boundaries import check_boundaries
from pyquant.generation.grammar.lr.conflicts import check_conflicts, check_endless, made_of
from pyquant.generation.grammar.lr.lexer import IGNORED, Lexer, make_lexer
from pyquant.generation.grammar.lr.regex_automaton import RegexAutomaton
from pyquant.generation.grammar.lr.size import bounded_terminals, check_size

START, END = "start", "$END"
CALLS_A_RULE = 8  # that lark nests for each rule of a chain, at most
# Declared by grammars that want several stacks where the next terminal does not decide.
AMBIGUOUS = "AMBIGUOUS"
RESERVED = "RESERVED"  # a terminal of texts that no other terminal may have; the parser never takes it


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables of a grammar, as the kernel needs them.

    Attributes
    ----------
    terminals : tuple of str
        Names; the last is END.
    lexer : Lexer
    actions : (n_states, n_terminals) int32
        0: an error; state + 1: shift; -(rule + 1): reduce. Of several a shift is here, if there is one.
    more : (n, 3) int32
        State, terminal and action of every other action; none but in an ambiguous grammar.
    gotos : (n_states, n_nonterminals) int32
        A state, or -1.
    lengths, origins : (n_rules,) int32
        What a reduction takes from the stack, and the nonterminal that it puts there.
    start : int
        The first state.
    imports : dict of str to str
        Files that the grammar imports, other than lark's own, and the SHA-256 of the text of each.
    """

    terminals: tuple[str, ...]
    lexer: Lexer
    actions: NDArray[np.int32]
    more: NDArray[np.int32]
    gotos: NDArray[np.int32]
    lengths: NDArray[np.int32]
    origins: NDArray[np.int32]
    start: int
    imports: dict[str, str]

    def arrays(self) -> dict[str, NDArray[np.int32]]:
        """Return what the kernel is made of, by the names of its arguments."""
        names = ("actions", "more", "gotos", "lengths", "origins")
        own = {name: getattr(self, name) for name in names}
        return {"next": self.lexer.next, "ends": self.lexer.ends, **own}


def make_tables(grammar: Grammar) -> Tables:
    """Make tables of a grammar.

    Raises
    ------
    GrammarError
        It is no grammar, not LALR(1) and does not declare AMBIGUOUS, has no texts, its terminals do not fit
        together, or a parser would follow it without end.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of expressions that Python may read otherwise
            return _make_tables(grammar)
    except GrammarError as error:
        raise GrammarError(f"{grammar.name}: {error}") from None


@contextmanager
def _recursion() -> Iterator[None]:
    """Let functions call themselves as often as the package lark does along a chain of MOST_RULES rules.

    How often that is depends on the order of its sets, and so on the process.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, CALLS_A_RULE * MOST_RULES))
    try:
        yield
    except RecursionError:
        raise GrammarError("its rules name one another too deeply for engine lr") from None
    finally:
        sys.setrecursionlimit(before)


def _make_tables(grammar: Grammar) -> Tables:
    definitions, rules, ignored, imports, ambiguous = _read(grammar)
    _check_productive(rules)
    used = {symbol.name for rule in rules for symbol in rule.expansion if symbol.is_term}
    if not used:
        raise GrammarError("it has no text but the empty one")
    used |= {terminal.name for terminal in definitions} & {RESERVED}
    terminals = (*sorted(used), END)
    if len(terminals) > _core.GRAMMAR_TERMINALS:
        raise GrammarError(f"{len(used)} terminals; engine lr takes {_core.GRAMMAR_TERMINALS - 1} at most")
    lexer = _lexer([t for t in definitions if t.name in used or t.name in ignored], terminals, ignored)
    with _recursion():
        tables = _parser(rules, terminals, lexer, imports, ambiguous)
    check_boundaries(lexer, tables.actions, terminals)
    return tables


def _read(grammar: Grammar) -> tuple[list[TerminalDef], list[Any], set[str], dict[str, str], bool]:
    folders = [str(GRAMMARS), str(Path(grammar.name).parent)]
    if (before := grammar.text.partition("\0")[0]) != grammar.text:  # lark evaluates literals as Python's
        raise GrammarError(f"line {1 + before.count(chr(10))}: a NUL byte")
    try:
        with bounded_terminals():
            loaded, files = load_grammar(grammar.text, grammar.name, folders, False)
        check_size(loaded)
        definitions, rules, ignored = loaded.compile([START], {RESERVED})
    except GrammarError:
        raise
    except LarkError as error:
        raise GrammarError(str(error).strip()) from None
    except RecursionError:
        raise GrammarError("it is nested too deeply, or imports itself") from None
    except Exception as error:  # lark's reader does not foresee everything that a text may be
        raise GrammarError(f"lark cannot read it: {type(error).__name__}: {error}") from None
    imports = {os.path.abspath(path): digest for path, digest in files.items() if isinstance(path, str)}
    ambiguous = any(name == AMBIGUOUS for name, _ in loaded.term_defs)
    return definitions, rules, set(ignored), imports, ambiguous


def _check_productive(rules: list[Any]) -> None:
    """Refuse rules without any text: a parser would go into them and never come out."""
    if START not in {rule.origin.name for rule in rules}:
        raise GrammarError(f"it has no rule {START}")
    productive = made_of(
        rules, {symbol.name for rule in rules for symbol in rule.expansion if symbol.is_term}
    )
    for rule in rules:
        if rule.origin.name not in productive:
            raise GrammarError(f"rule {rule.origin.name} matches no text: it never comes to an end")


def _lexer(definitions: list[TerminalDef], terminals: tuple[str, ...], ignored: set[str]) -> Lexer:
    """Order terminals: by priority, then strings before expressions, then as lark's own lexer does."""

    def order(terminal: TerminalDef) -> tuple[Any, ...]:
        pattern = terminal.pattern
        is_expression = not isinstance(pattern, PatternStr)
        return (-terminal.priority, is_expression, -pattern.max_width, -len(pattern.value), terminal.name)

    automaton = RegexAutomaton()
    for terminal in definitions:
        try:
            re.compile(terminal.pattern.to_regexp())
        except (re.error, OverflowError, RecursionError) as error:
            raise GrammarError(f"terminal {terminal.name}: {error}") from None
    definitions = sorted(definitions, key=order)
    for terminal in definitions:
        try:
            automaton.add(terminal.pattern.to_regexp())
        except GrammarError as error:
            raise GrammarError(f"terminal {terminal.name}: {error}") from None
    names = [terminal.name for terminal in definitions]
    numbers = [IGNORED if name in ignored else terminals.index(name) for name in names]
    return make_lexer(automaton, names, numbers)


def _parser(
    rules: list[Any], terminals: tuple[str, ...], lexer: Lexer, imports: dict[str, str], ambiguous: bool
) -> Tables:
    analyzer = LALR_Analyzer(ParserConf(rules, {}, [START]))
    analyzer.compute_lr0_states()
    analyzer.compute_reads_relations()
    analyzer.compute_includes_lookback()
    analyzer.compute_lookaheads()
    if ambiguous:
        check_endless(rules)
    else:
        check_conflicts(analyzer)

    nonterminals = sorted({rule.origin.name for rule in rules})
    column = {name: i for i, name in enumerate(terminals)}
    goto_column = {name: i for i, name in enumerate(nonterminals)}
    rule_number = {rule: i for i, rule in enumerate(rules)}
    number = {state: i for i, state in enumerate(analyzer.lr0_itemsets)}
    actions = np.zeros((len(number), len(terminals)), np.int32)
    more: list[tuple[int, int, int]] = []
    gotos = np.full((len(number), len(nonterminals)), -1, np.int32)
    for itemset, state in number.items():
        for symbol, following in itemset.transitions.items():
            if symbol.name in goto_column:
                gotos[state, goto_column[symbol.name]] = number[following]
            elif symbol.name in column:
                actions[state, column[symbol.name]] = number[following] + 1
        for terminal, ended in itemset.lookaheads.items():
            for action in sorted(-rule_number[rule] - 1 for rule in ended):
                if actions[state, column[terminal.name]] == 0:
                    actions[state, column[terminal.name]] = action
                else:
                    more.append((state, column[terminal.name], action))
    (start,) = analyzer.lr0_start_states.values()
    end = number[start.transitions[NonTerminal(START)]]
    actions[end, -1] = end + 1  # the text's end may come, and nothing after it
    lengths = np.array([len(rule.expansion) for rule in rules], np.int32)
    origins = np.array([goto_column[rule.origin.name] for rule in rules], np.int32)
    others = np.array(sorted(more), np.int32).reshape(-1, 3)
    return Tables(terminals, lexer, actions, others, gotos, lengths, origins, number[start], imports)
