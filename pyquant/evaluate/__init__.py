"""Measure a model on a text, or against another model: perplexity, KLD, speed."""
