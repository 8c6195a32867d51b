"""Rules about tasks."""
