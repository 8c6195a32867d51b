"""HTML page, styles and scripts around the views, and the check of Host headers."""
