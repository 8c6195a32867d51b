"""Commands: read options, call one function, print, exit. Large imports are in the functions."""
