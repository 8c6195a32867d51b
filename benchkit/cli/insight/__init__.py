"""Commands that draw conclusions from stored runs."""
