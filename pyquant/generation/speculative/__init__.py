"""Let a cheap draft write ahead, and a target verify it: the target's text, in less time."""
