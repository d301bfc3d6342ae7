"""Call a function: an answer is a JSON object with the function's name and its arguments, by a schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyquant.generation.grammar.grammar import Grammar, Language
from pyquant.generation.structured.task import Item, Verdict

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
FUNCTIONS: dict[str, dict[str, str]] = {
    "get_weather": {"city": "string", "days": "integer"},
    "set_timer": {"minutes": "integer", "label": "string"},
    "convert_currency": {"amount": "number", "source": "string", "target": "string"},
    "send_message": {"to": "string", "text": "string"},
    "play_music": {"artist": "string", "shuffle": "boolean"},
}
QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("What will the weather be in Paris over the next 3 days?", "get_weather", {"city": "Paris", "days": 3}),
    ("Tell me the weather in Tokyo for 7 days.", "get_weather", {"city": "Tokyo", "days": 7}),
    ("I need a forecast of one day for Lima.", "get_weather", {"city": "Lima", "days": 1}),
    ("Weather in Oslo, next 5 days please.", "get_weather", {"city": "Oslo", "days": 5}),
    ("Set a timer of 10 minutes called tea.", "set_timer", {"minutes": 10, "label": "tea"}),
    ("Remind me in 45 minutes, label it laundry.", "set_timer", {"minutes": 45, "label": "laundry"}),
    ("Start a 25 minute timer named work.", "set_timer", {"minutes": 25, "label": "work"}),
    ("Timer for the pasta: 9 minutes, label pasta.", "set_timer", {"minutes": 9, "label": "pasta"}),
    ("How much is 100 USD in EUR?", "convert_currency", {"amount": 100, "source": "USD", "target": "EUR"}),
    ("Convert 20 GBP to JPY.", "convert_currency", {"amount": 20, "source": "GBP", "target": "JPY"}),
    ("Change 5 CHF into SEK.", "convert_currency", {"amount": 5, "source": "CHF", "target": "SEK"}),
    ("I have 250 EUR. How many USD?", "convert_currency", {"amount": 250, "source": "EUR", "target": "USD"}),
    ("Tell Anna: I am late", "send_message", {"to": "Anna", "text": "I am late"}),
    ("Send Ben the message: call me", "send_message", {"to": "Ben", "text": "call me"}),
    ("Write to Eva: happy birthday", "send_message", {"to": "Eva", "text": "happy birthday"}),
    ("Message Tom: dinner at eight", "send_message", {"to": "Tom", "text": "dinner at eight"}),
    ("Play Queen, shuffled.", "play_music", {"artist": "Queen", "shuffle": True}),
    ("Play ABBA without shuffle.", "play_music", {"artist": "ABBA", "shuffle": False}),
    ("Put on Bach in order, no shuffle.", "play_music", {"artist": "Bach", "shuffle": False}),
    ("Shuffle songs of Prince.", "play_music", {"artist": "Prince", "shuffle": True}),
]


def schema(function: str) -> dict[str, Any]:
    """Return the JSON schema of a call of a function."""
    arguments = FUNCTIONS[function]
    return {
        "type": "object",
        "properties": {
            "function": {"const": function},
            "arguments": {
                "type": "object",
                "properties": {name: {"type": type_} for name, type_ in arguments.items()},
                "required": list(arguments),
                "additionalProperties": False,
            },
        },
        "required": ["function", "arguments"],
        "additionalProperties": False,
    }


ANY_CALL = json.dumps({"anyOf": [schema(function) for function in FUNCTIONS]})


class FunctionCall:
    """The task; see the module."""

    name = "function_call"
    instruction = (
        "Call the function that does what is asked. Write a JSON object with keys function and arguments. "
        "Functions: "
        + "; ".join(
            f"{function}({', '.join(f'{name}: {type_}' for name, type_ in arguments.items())})"
            for function, arguments in FUNCTIONS.items()
        )
        + "."
    )
    form = ANY_CALL
    engine = "llguidance"
    needs: Sequence[str] = ()
    examples: Sequence[tuple[str, str]] = (
        (
            "Weather in Rome for two days?",
            '{"function": "get_weather", "arguments": {"city": "Rome", "days": 2}}',
        ),
        (
            "Send Lea: see you soon",
            '{"function": "send_message", "arguments": {"to": "Lea", "text": "see you soon"}}',
        ),
        (
            "Set a timer of 3 minutes called eggs.",
            '{"function": "set_timer", "arguments": {"minutes": 3, "label": "eggs"}}',
        ),
    )
    items: Sequence[Item] = tuple(
        Item(
            question,
            question,
            Grammar(Language.JSON_SCHEMA, ANY_CALL, "function_call"),
            {"function": function, "arguments": arguments},
        )
        for question, function, arguments in QUESTIONS
    )

    def check(self, item: Item, answer: str) -> Verdict:
        """Read the JSON, look whether it is a call of a function, and of the one that was asked for.

        Arguments are compared without regard to upper case and a full stop at the end.
        """
        try:
            call = json.loads(answer)
        except (ValueError, RecursionError):
            return Verdict()
        if not _is_call(call):
            return Verdict(parses=True)
        return Verdict(parses=True, evaluates=True, right=_plain(call) == _plain(item.expected))


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or set(call) != {"function", "arguments"}:
        return False
    function, arguments = call["function"], call["arguments"]
    if not isinstance(function, str) or function not in FUNCTIONS or not isinstance(arguments, dict):
        return False
    types = FUNCTIONS[function]
    return set(arguments) == set(types) and all(_is(arguments[name], types[name]) for name in types)


def _is(value: Any, type_: str) -> bool:
    return isinstance(value, TYPES[type_]) and (type_ == "boolean") == isinstance(value, bool)


def _plain(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    arguments = {
        name: value.casefold().rstrip(".") if isinstance(value, str) else value
        for name, value in call["arguments"].items()
    }
    return call["function"], arguments


TASK = FunctionCall()
