"""The files of a new project, and the function that writes them."""
