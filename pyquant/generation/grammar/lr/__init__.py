"""Engine `lr`: LALR(1) grammars, with all that a vocabulary does in them found before the first token."""
