"""Generate completions: sessions, prompts, draws."""
