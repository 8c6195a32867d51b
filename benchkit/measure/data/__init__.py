"""Input data: datasets on disk, recipes that make them, random collections."""
