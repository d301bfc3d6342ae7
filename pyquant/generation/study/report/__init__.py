"""Parts of reports."""
