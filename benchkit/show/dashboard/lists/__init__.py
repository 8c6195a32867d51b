"""Pages that list runs, workloads and environments."""
