"""Fit settings to a model: tables, sensitivities, steps."""
