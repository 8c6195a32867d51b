"""The Panel app: one file per view over shared parts."""
