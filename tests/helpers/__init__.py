"""Data, servers and checks that several test files share."""
