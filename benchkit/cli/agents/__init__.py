"""Access to a store for agents."""
