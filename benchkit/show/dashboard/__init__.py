"""Dashboard: a Panel app that shows a store."""
