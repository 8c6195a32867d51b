"""Analysis of single runs."""
