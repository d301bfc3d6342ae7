"""A task: questions whose answers have a form, the grammar of the form, and a check of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyquant.generation.grammar.grammar import Grammar


@dataclass(frozen=True)
class Item:
    """A question."""

    name: str  # what results call it
    question: str
    grammar: Grammar  # the form that its answers have
    expected: Any  # what the task's check compares answers with


@dataclass(frozen=True)
class Verdict:
    """Verdict of a check on an answer. Each needs the one before it."""

    parses: bool = False  # it has the form
    evaluates: bool = False  # it means something: it can be computed or carried out
    right: bool = False  # it is what was asked for


class Task(Protocol):
    """Interface of what a file in `pyquant/generation/structured/tasks` defines as TASK."""

    name: str
    instruction: str  # what to do, and the form of an answer in words
    form: str  # as a grammar that a model may be shown; a long one in short
    engine: str  # what follows its grammar where nothing else is asked for
    needs: Sequence[str]  # programs that the check runs
    examples: Sequence[tuple[str, str]]  # three, of a question and its answer
    items: Sequence[Item]

    def check(self, item: Item, answer: str) -> Verdict:
        """Check an answer. It never runs anything that a model generated outside of a sandbox with limits."""


Message = Mapping[str, str]
TECHNIQUES = ("free", "grammar", "grammar and few shots", "grammar in the prompt")


def keeps_to_grammar(technique: str) -> bool:
    """Return whether a technique masks tokens."""
    return technique != "free"


def messages(task: Task, item: Item, technique: str) -> list[Message]:
    """Write a question as a conversation, as a technique puts it.

    free: the form in words. grammar: one example beside. grammar and few shots: three examples. grammar in
    the prompt: the form as a grammar.

    The first three are those of García Casasola's master's thesis of 2025.
    """
    asked = f"{task.instruction}\nAnswer with that alone, without any other text."
    if technique == "grammar in the prompt":
        asked += f"\nThe form of an answer is:\n{task.form.strip()}"
    n_examples = {"grammar": 1, "grammar and few shots": 3}.get(technique, 0)
    turns: list[Message] = [{"role": "system", "content": asked}]
    for question, answer in task.examples[:n_examples]:
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": item.question}]


def as_text(turns: Sequence[Message]) -> str:
    """Write a conversation for a model without a chat template."""
    lines = [turns[0]["content"]]
    for turn in turns[1:]:
        lines.append(f"{'Question' if turn['role'] == 'user' else 'Answer'}: {turn['content']}")
    return "\n".join([*lines, "Answer: "])
