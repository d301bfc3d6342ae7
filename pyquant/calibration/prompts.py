"""What a model is asked to write about: words of its vocabulary, so that texts differ in what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle

import numpy as np

from pyquant.llama.vocabulary import Vocabulary

WORD = re.compile(rb" [A-Z][a-z]{3,}")  # a token that begins a word, and mostly is one: a name or a title
OPENINGS = ("{} is", "The {}", "In {},", "{} was")
FILES = (
    "// {}.cpp\n#include",
    "// {}.rs\nuse",
    "// {}.go\npackage",
    "/* {}.c */\n#include",
    "// {}.java\nimport",
    "// {}.js\n",
    "// {}.ts\nimport",
    "#!/bin/bash\n# {}\n",
    "-- {}.sql\n",
    "<!DOCTYPE html>\n<title>{}</title>\n",
    "<?php\n// {}\n",
    "# {}.rb\n",
    "// {}.cs\nusing",
    "# {}\n\n",
    "/* {}.css */\n",
    '{{\n  "{}": ',
)
QUESTIONS = (
    "Write an article about {}.",
    "Write a news report about {}.",
    "Tell me a story about {}.",
    "Write a letter about {}.",
    "What is {}?",
    "Write the chapter of a history book about {}.",
    "Write a scene of a play about {}.",
    "Describe {}.",
)


def prompts(vocabulary: Vocabulary, forms: tuple[str, ...], seed: int) -> Iterator[list[int]]:
    """Yield prompts without end, as tokens: the forms in turn, each with a word at random.

    A vocabulary without words in Latin letters has single tokens at random in their place.
    """
    rng = np.random.default_rng(seed)
    words = [piece.decode().strip() for piece in vocabulary.pieces() if WORD.fullmatch(piece)]
    if not words:
        ordinary = vocabulary.ordinary_tokens()
        while True:
            yield [int(rng.choice(ordinary))]
    for form in cycle(forms):
        prompt = form.format(words[rng.integers(len(words))])
        yield vocabulary.tokenize(prompt.encode(), ends=False).tolist()
