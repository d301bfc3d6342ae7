"""`pyquant info`."""


def info() -> None:
    """Info."""
