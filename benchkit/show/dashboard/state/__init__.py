"""State of a page: address, window of time, tables, and cached data."""
