"""Fit settings to a model: tables, sensitivities, mixes of types, steps; and the file of a type or a size."""
