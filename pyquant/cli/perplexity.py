"""`pyquant perplexity`."""


def perplexity() -> None:
    """Perplexity."""
