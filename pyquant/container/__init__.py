"""Packed models: a GGUF with its codes entropy-coded, to the bit; docs/container.md is the format."""
