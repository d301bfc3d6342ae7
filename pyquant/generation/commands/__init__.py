"""Commands that generate."""
