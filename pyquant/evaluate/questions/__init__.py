"""Ask models multiple-choice questions from llama-perplexity's files, and score answers as it does."""
