"""A file with a task that pyquant does not come with."""

from __future__ import annotations

TASK = """
from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.structured.task import Item, Verdict

ANSWER = Grammar(Language.REGEX, "yes|no", "yes_or_no.py")


class YesOrNo:
    name = "yes or no"
    instruction = "Say whether it is so: yes or no."
    form = "yes | no"
    engine = "llguidance"
    needs = ()
    examples = (("Is 2 even?", "yes"), ("Is 3 even?", "no"), ("Is 4 even?", "yes"))
    items = (Item("5", "Is 5 even?", ANSWER, "no"), Item("6", "Is 6 even?", ANSWER, "yes"))

    def check(self, item, answer):
        parses = answer in ("yes", "no")
        return Verdict(parses, parses, answer == item.expected)


TASK = YesOrNo()
"""
