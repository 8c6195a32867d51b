"""Build the content of a run file from a recording."""
