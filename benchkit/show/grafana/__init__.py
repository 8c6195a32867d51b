"""grafana."""
