"""Drafts propose tokens, and the target verifies them."""
