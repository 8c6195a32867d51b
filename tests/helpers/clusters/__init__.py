"""Real clusters on this machine for tests: each module starts one kind and stops it."""
