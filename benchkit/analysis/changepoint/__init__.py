"""changepoint."""
