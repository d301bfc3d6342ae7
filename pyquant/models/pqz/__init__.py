"""Entropy-coded model files, `.pqz`: pack, unpack and read them."""
