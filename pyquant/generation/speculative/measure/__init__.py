"""Measure costs and speed-up of speculative decoding, by the clock."""
