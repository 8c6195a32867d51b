"""Rules about the client and the time before the first task."""
