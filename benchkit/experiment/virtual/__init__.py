"""Runs of virtual clusters: simulate kept runs, workloads and synthetic graphs in environments.

`inputs` are graphs with durations, `process` simulates in the process of an environment, `api` is
`benchkit.simulate`.
"""
