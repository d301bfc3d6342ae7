"""Draw what was measured."""
