"""Replay policies on records, without a model."""
