"""Speculative decoding: a draft proposes tokens, and the target verifies several in one pass."""
