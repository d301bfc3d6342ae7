"""Grammars that decide which tokens may come next: one interface, several engines."""
