"""bisect."""
