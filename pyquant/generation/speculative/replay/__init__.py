"""Replay policies on a record: what they would take, without a model."""
