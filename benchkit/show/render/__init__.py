"""Draw pages: as elements of the dashboard, as static HTML, and as Markdown.

A renderer computes no state and formats no number.
"""
