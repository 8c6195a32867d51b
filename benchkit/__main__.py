"""`python -m benchkit`: the command line."""

from benchkit.cli.main import main

if __name__ == "__main__":  # a process of `benchkit mcp` imports this file
    main()
