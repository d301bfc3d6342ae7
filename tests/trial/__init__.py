"""A trial by attack: everything that may happen to pyquant's files, processes and surroundings, at random.

    python -m tests.trial --cases N --seed S [--attack NAME ...] [--json]

`case.py` says what a case is, `forked.py` runs quick cases in processes whose crash can be seen, and
`runner.py` shares cases out among attacks; every other file is a way to attack.
"""
