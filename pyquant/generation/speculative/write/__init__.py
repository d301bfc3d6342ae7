"""Let a draft write ahead, and its target verify what it wrote."""
