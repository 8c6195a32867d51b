"""Doors: options in, one call, exit code. Heavy imports live inside the commands."""
