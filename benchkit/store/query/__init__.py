"""Ask all runs by SQL: a cache of their tables as Parquet files, read by DuckDB."""
