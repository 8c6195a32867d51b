"""The run file: names, encoding and reading of the NetCDF4 file of a run."""
