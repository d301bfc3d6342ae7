"""Generate completions: within a grammar, by speculative decoding, and checked for the form asked for.

Nothing outside of this package imports it; `pyquant.wings` reads what it adds.
"""

COMMANDS = (
    ("generate", "pyquant.generation.commands.generate", "generate"),
    ("draft", "pyquant.generation.commands.draft", "app"),
    ("structured", "pyquant.generation.commands.structured", "structured"),
)
METRICS = ("pyquant.generation.study.metrics.drafting", "pyquant.generation.study.metrics.structured")
