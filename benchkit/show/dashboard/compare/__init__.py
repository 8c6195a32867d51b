"""Page that compares arms or selections."""
