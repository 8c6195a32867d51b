"""A virtual worker: threads, requests for results, network link and heartbeats of one worker.

The state machine decides; this module does what `Worker` does around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from benchkit._compat.distributed_internals import EPOCH
from benchkit.simulation.event_queue import EventLoop, HandlerCost, MessageStream


class SpillingResults(OrderedDict[Any, Any]):
    """Keep the most recently used results in memory, up to a limit."""

    def __init__(
        self, limit: float, size_of: Callable[[Any], int], move: Callable[[int, bool], None]
    ) -> None:
        super().__init__()
        self.limit, self.size_of, self.move = limit, size_of, move
        self.in_memory = 0
        self.on_disk: dict[Any, int] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.in_memory += self.size_of(key)
        self._evict()

    def __delitem__(self, key: Any) -> None:
        if self.on_disk.pop(key, None) is None:
            self.in_memory -= self.size_of(key)
        super().__delitem__(key)

    def use(self, keys: Iterable[Any]) -> None:
        """Read results back into memory that a task or another worker needs."""
        for key in keys:
            self.move_to_end(key)
            size = self.on_disk.pop(key, None)
            if size is not None:
                self.in_memory += size
                self.move(size, True)
        self._evict()

    def _evict(self) -> None:
        if self.in_memory <= self.limit:
            return
        for key in self:
            if key not in self.on_disk:
                size = self.on_disk[key] = self.size_of(key)
                self.in_memory -= size
                self.move(size, False)
                if self.in_memory <= self.limit:
                    return


#: Transfers below this size in B do not count for the bandwidth that a worker reports.
_MIN_MEASURED = 1_000_000
#: Memory limit in B for the state machine of a worker without limit.
_NO_LIMIT = 10**12


class VirtualWorker:
    """One worker."""

    def __init__(self, cluster: Any, index: int, address: str) -> None:
        from dask.utils import parse_bytes

        get, shape = cluster.get, cluster.shape
        self.cluster, self.index, self.address = cluster, index, address
        self.queue, self.model, self.internals = cluster.queue, cluster.model, cluster.internals
        self.loop = cluster.loop if shape.shared_loop else EventLoop(self.queue)
        self.data: Any = {}
        self.spills = bool(shape.memory_limit and get("distributed.worker.memory.target", 0.6))
        if self.spills:
            target = get("distributed.worker.memory.target", 0.6) * shape.memory_limit
            self.data = SpillingResults(target, cluster.nbytes.__getitem__, self._move)
        share = get("distributed.worker.memory.transfer", 0.1)
        limit = shape.memory_limit * share if shape.memory_limit and share else _NO_LIMIT
        self.state = self.internals.new_worker_state(
            address=address,
            nthreads=shape.threads,
            data=self.data,
            transfer_incoming_count_limit=get("distributed.worker.connections.outgoing"),
            transfer_message_bytes_limit=parse_bytes(
                get("distributed.worker.transfer.message-bytes-limit", "50MB")
            ),
            transfer_incoming_bytes_limit=limit,
        )
        self.cost = HandlerCost(self.state, self.model.worker_call, self.model.worker_transition)
        self.max_outgoing = get("distributed.worker.connections.incoming")
        self.stream = MessageStream(self.queue, self.model).connect(
            self.loop, self.cost, self.model.worker_batch, self._send_to_scheduler
        )
        self.n_outgoing = 0
        #: Virtual times at which the two ways of the network link become free.
        self.send_free = self.receive_free = 0.0
        #: Running task -> start of its execution; task -> number of its thread.
        self.executing: dict[Any, float] = {}
        self.thread_of: dict[Any, int] = {}
        self._free_threads = list(range(shape.threads))[::-1]
        self._bandwidth = float(parse_bytes(get("distributed.scheduler.bandwidth")))
        self._bandwidth_workers: dict[str, tuple[float, int]] = {}
        #: Highest bytes of results since the last sample; seconds on disk; fetches.
        self.peak = self.n_received = 0
        self.disk_seconds = [0.0, 0.0]

    # -- messages -----------------------------------------------------------------------------

    def deliver(self, messages: list[dict[str, Any]]) -> None:
        """Receive a batch of messages from the scheduler."""
        self.loop.submit(self.cost, self._read, messages)

    def _read(self, messages: list[dict[str, Any]]) -> None:
        self.loop.extra += self.model.batch_read + self.model.message_read * len(messages)
        for message in messages:
            self._handle(self.internals.event_of(message))

    def _handle(self, event: Any) -> None:
        """Give an event to the state machine and follow its instructions."""
        module, model = self.internals.worker_module, self.model
        for instruction in self.state.handle_stimulus(event):
            if isinstance(instruction, module.SendMessageToScheduler):
                self.stream.send(instruction.to_dict())
            elif isinstance(instruction, module.Execute):
                key = instruction.key
                self.loop.extra += model.execute
                self.executing[key] = self.queue.now
                if self.spills:
                    self.data.use([task.key for task in self.state.tasks[key].dependencies])
                self.queue.after(model.thread_switch, self._start, key)
            elif isinstance(instruction, module.GatherDep):
                self.loop.extra += model.gather
                peer = self.cluster.workers[instruction.worker]
                self.queue.after(model.latency, peer.receive_request, self, instruction)
            elif isinstance(instruction, module.RetryBusyWorkerLater):
                retry = self._event("RetryBusyWorker", worker=instruction.worker)
                self.queue.after(model.busy_retry, self._submit, retry)
            else:
                raise NotImplementedError(f"instruction {instruction!r} of a worker")

    def _event(self, name: str, **fields: Any) -> Any:
        kind = getattr(self.internals.worker_module, f"{name}Event")
        return kind(stimulus_id=f"{name}-{self.queue.now}", **fields)

    def _submit(self, event: Any) -> None:
        self.loop.submit(self.cost, self._handle, event)

    def _send_to_scheduler(self, messages: list[dict[str, Any]]) -> None:
        self.cluster.receive(self, messages)

    # -- threads ------------------------------------------------------------------------------

    def _start(self, key: Any) -> None:
        # A seceded task would leave no free thread; such graphs are refused.
        self.thread_of[key] = thread = self._free_threads.pop()
        task, begin = self.state.tasks[key], self.queue.now
        seconds = self.cluster.seconds[key]
        self.queue.at(begin + seconds, self._end, key, thread, begin, getattr(task, "run_id", None))

    def _end(self, key: Any, thread: int, begin: float, run_id: Any) -> None:
        self._free_threads.append(thread)
        event = self.internals.success_event(
            stimulus_id=f"task-finished-{self.queue.now}",
            key=key,
            run_id=run_id,
            value=None,
            start=EPOCH + begin,
            stop=EPOCH + self.queue.now,
            nbytes=self.cluster.nbytes[key],
            type=object,
        )
        self.queue.at(
            self.queue.now + self.model.thread_switch,
            self.loop.submit, self.cost, self._finish, event,
        )  # fmt: skip

    def _finish(self, event: Any) -> None:
        self.executing.pop(event.key, None)
        self._handle(event)
        self._note_memory()

    def _note_memory(self) -> None:
        self.peak = max(self.peak, self.state.nbytes)

    def _move(self, nbytes: int, is_read: bool) -> None:
        seconds = nbytes / self.model.disk_bandwidth
        self.loop.extra += seconds  # spilling blocks the event loop
        self.disk_seconds[is_read] += seconds

    # -- transfers ----------------------------------------------------------------------------

    def receive_request(self, receiver: VirtualWorker, instruction: Any) -> None:
        """Receive a request for results."""
        self.loop.submit(self.cost, self._answer, receiver, instruction)

    def _answer(self, receiver: VirtualWorker, instruction: Any) -> None:
        model = self.model
        self.loop.extra += model.gather
        on_same_host = self.cluster.host_of(self.index) == self.cluster.host_of(receiver.index)
        # As `Worker.get_data`: twice as many connections within a host.
        limit = self.max_outgoing and self.max_outgoing * (1 + on_same_host)
        if limit and self.n_outgoing >= limit:
            busy = self._event(
                "GatherDepBusy", worker=self.address, total_nbytes=instruction.total_nbytes
            )
            self.queue.after(model.latency, receiver._submit, busy)
            return
        self.n_outgoing += 1
        keys = [key for key in instruction.to_gather if key in self.data]
        if self.spills:
            self.data.use(keys)
        nbytes = sum(self.cluster.nbytes[key] for key in keys)
        self.loop.extra += model.per_byte * nbytes
        requested = self.queue.now - model.latency
        self.queue.after(0.0, self._send, receiver, instruction, keys, nbytes, requested)

    def _send(
        self, receiver: VirtualWorker, instruction: Any, keys: list[Any], nbytes: int, begin: float
    ) -> None:
        """Occupy the links of both ends: each carries one transfer at a time in each direction."""
        start = max(self.queue.now, self.send_free, receiver.receive_free)
        end = start + nbytes / self.model.bandwidth
        self.send_free = receiver.receive_free = end
        self.queue.at(
            end + self.model.latency, self._sent, receiver, instruction, keys, nbytes, begin
        )

    def _sent(self, receiver: VirtualWorker, *transfer: Any) -> None:
        self.n_outgoing -= 1
        receiver.loop.submit(receiver.cost, receiver._receive, self, *transfer)

    def _receive(
        self, sender: VirtualWorker, instruction: Any, keys: list[Any], nbytes: int, begin: float
    ) -> None:
        """Do as `Worker.gather_dep` and `Worker._update_metrics_received_data`."""
        now = self.queue.now
        self.loop.extra += self.model.per_byte * nbytes
        self.n_received += 1
        self.cluster.add_transfer(sender.index, self.index, nbytes, now - begin)
        if keys:
            task = self.state.tasks[next(iter(instruction.to_gather))]
            consumer = next(iter(task.dependents), task)
            consumer.startstops.append(
                {
                    "action": "transfer",
                    "start": EPOCH + begin,
                    "stop": EPOCH + now,
                    "source": sender.address,
                }
            )
        if nbytes > _MIN_MEASURED:
            speed = nbytes / max(0.001, now - begin)
            self._bandwidth = self._bandwidth * 0.95 + speed * 0.05
            total, count = self._bandwidth_workers.get(sender.address, (0.0, 0))
            self._bandwidth_workers[sender.address] = (total + speed, count + 1)
        self._handle(
            self._event(
                "GatherDepSuccess",
                worker=sender.address,
                total_nbytes=instruction.total_nbytes,
                data=dict.fromkeys(keys),
            )
        )
        self._note_memory()

    # -- heartbeats ---------------------------------------------------------------------------

    def beat(self) -> None:
        """Send a heartbeat to the scheduler; a job of the worker's event loop."""
        now = self.queue.now
        self.loop.extra += self.model.heartbeat
        message = {
            "address": self.address,
            "resolve_address": False,
            "now": EPOCH + now,
            "metrics": self.metrics(),
            "executing": {key: now - begin for key, begin in self.executing.items()},
            "extensions": {},
        }
        cluster = self.cluster
        self.queue.after(
            self.model.latency, cluster.loop.submit, cluster.cost, cluster.heartbeat, message
        )

    @property
    def spilled(self) -> int:
        """Bytes of results on disk."""
        return sum(self.data.on_disk.values()) if self.spills else 0

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of a heartbeat."""
        workers, self._bandwidth_workers = self._bandwidth_workers, {}
        in_memory = self.state.nbytes - self.spilled
        return {
            "bandwidth": {"total": self._bandwidth, "workers": workers, "types": {}},
            "digests_total_since_heartbeat": {},
            "managed_bytes": in_memory,
            "memory": int(in_memory + self.model.baseline_memory),
            "spilled_bytes": {"memory": self.spilled, "disk": self.spilled},
            "transfer": {},
            "event_loop_interval": 0.02,
            "cpu": 0,
            "time": EPOCH + self.queue.now,
        }
