"""The index of a store: records, segments and queries."""
