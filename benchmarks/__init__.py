"""Measurements of speed and memory against the tools that a user would take instead."""
