"""prometheus."""
