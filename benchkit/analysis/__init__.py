"""Judge runs: arrays in, arrays out. Knows no files, clusters or pictures."""
