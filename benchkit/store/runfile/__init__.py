"""runfile."""
