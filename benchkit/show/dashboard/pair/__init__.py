"""pair."""
