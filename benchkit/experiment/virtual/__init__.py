"""Runs of virtual clusters: simulate kept runs, workloads and synthetic graphs in environments.

`graph_of_run` and `costs` read kept runs, `process` simulates in the process of an environment,
`api` is `benchkit.simulate`, `fit` fits the constants of a model.
"""
