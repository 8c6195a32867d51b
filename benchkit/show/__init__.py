"""Show runs: plots, reports, dashboard."""
