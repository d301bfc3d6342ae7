"""What studies measure of texts that models write, and how reports show it."""
