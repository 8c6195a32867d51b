"""Publish regressions as issues of GitHub or as Markdown files."""
