"""Measure what drafting takes and brings, by the clock."""
