"""Tests of pytest as workloads: collect them, and measure one of them."""
