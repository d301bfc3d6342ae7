"""Quantize to a type or a size by a method: calibrate, round in stages, keep the stages that help."""
