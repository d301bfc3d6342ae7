"""What studies measure of completions that models generate, and how reports show it."""
