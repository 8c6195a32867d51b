"""nights."""
