"""Export a Grafana dashboard, and annotations and links for runs."""
