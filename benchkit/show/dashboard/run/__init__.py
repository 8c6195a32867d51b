"""Page of one run."""
