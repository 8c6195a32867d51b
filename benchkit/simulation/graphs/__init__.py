"""Synthetic task graphs as workloads."""
