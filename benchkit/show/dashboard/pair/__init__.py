"""Page of two runs."""
