"""Rules of the diagnosis: a module with a function `find` each, in a folder by subject."""
