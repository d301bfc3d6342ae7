"""`pyquant`, and `python -m pyquant`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command; Ctrl-C ends the process quietly also while the command line is loaded."""
    try:
        from pyquant import cli
    except KeyboardInterrupt:
        exec("")  # as in pyquant.cli.signals: the status is 130
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
