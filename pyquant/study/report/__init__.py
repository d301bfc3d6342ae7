"""Show the results of a study: tables, figures, a page."""
