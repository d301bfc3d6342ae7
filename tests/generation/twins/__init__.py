"""Numpy twins of csrc/generation."""
