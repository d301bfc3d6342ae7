"""`python -m pyquant`."""

from pyquant.cli import main

main()
