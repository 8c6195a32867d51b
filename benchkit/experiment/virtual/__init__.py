"""Runs of virtual clusters: simulate kept runs, workloads and synthetic graphs in environments.

`inputs` reads kept runs and graphs, `process` simulates in the process of an environment, `api` is
`benchkit.simulate`.
"""
