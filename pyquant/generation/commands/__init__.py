"""Commands that let models write."""
