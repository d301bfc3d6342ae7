"""Let models write."""
