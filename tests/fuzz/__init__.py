"""Targets of fuzzing: C++ for libFuzzer, Python for Atheris, and the inputs that they begin with."""
