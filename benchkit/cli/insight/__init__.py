"""Commands that ask stored runs: diagnose, whatif, query and simulate."""
