"""Virtual cluster: Dask's scheduler and worker state machines in virtual time.

`Scheduler` and `WorkerState` are those of the environment under test, unchanged. Modelled are the
clock, the network, event loops, threads and batches of messages (`model.Model` has all constants).
The package runs in that environment, like `benchkit.measure`, and writes a recording: it needs
Dask and the standard library only.

From the bottom up: `graph` and `synthetic` (task graphs), `model`, `event_queue`, `worker`,
`cluster`, `recording`, `workload_graph`, `entrypoint`.
"""
