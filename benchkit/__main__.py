"""`python -m benchkit`: the command line."""

from benchkit.cli.main import main

main()
