"""Recipes of the input datasets; a workload file imports the module whose datasets it reads.

Generators are imported when a dataset is made, so that measuring does not need them.
"""
