"""Commands for the files of a project: `init` and `notebooks`."""
