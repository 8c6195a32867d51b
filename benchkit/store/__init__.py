"""Keep runs: the run file, the folder of immutable files around it, and its index."""
