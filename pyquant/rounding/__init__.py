"""Quantize a model: decide the types, round the weights, write the file."""
