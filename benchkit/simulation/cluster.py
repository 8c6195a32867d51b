"""A virtual cluster: the real scheduler, virtual workers and a client that submits a task graph."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import pickle
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from benchkit._compat.distributed_internals import CLIENT, EPOCH, Internals, check_internals
from benchkit.measure.errors import error_summary
from benchkit.simulation.event_queue import EventLoop, EventQueue, HandlerCost, MessageStream
from benchkit.simulation.graph import StableText, Submission, VirtualGraph, check_graph, stable_key
from benchkit.simulation.model import ClusterShape, Model
from benchkit.simulation.worker import VirtualWorker


class SimulationError(RuntimeError):
    """A simulation cannot continue."""


class VirtualClient:
    """Submit the graph of a cluster, one submission after the other."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.queue = cluster, cluster.queue
        #: Arrival of each submission, and time at which the scheduler had handled it.
        self.submitted: list[tuple[float, float]] = []
        self.is_done = False
        self._packer = cluster.internals.new_client()
        self._submissions: deque[Submission] = deque(cluster.graph.submissions)
        self._wanted: set[Any] = set()
        self._in_memory: set[Any] = set()
        #: Earliest virtual time at which the scheduler receives the next submission.
        self._earliest = 0.0

    def submit(self) -> None:
        """Send the submissions for which the client has what they wait for."""
        cluster, graph, queue = self.cluster, self.cluster.graph, self.queue
        n_sent = len(graph.submissions) - len(self._submissions)
        while self._submissions:
            submission, since = self._submissions[0], cluster.started
            if n_sent == graph.n_before:  # data that were prepared are there: the clock starts
                if len(self.submitted) < n_sent or not self._wanted <= self._in_memory:
                    return
                since = cluster.started = queue.now
            if submission.after >= 0:
                key = cluster.keys[submission.after]
                if key not in self._in_memory:
                    return
                since = cluster.ends[key]
            received = max(queue.now + cluster.model.latency, since + submission.delay_s)
            self._earliest = max(self._earliest, received)
            self._submissions.popleft()
            n_sent += 1
            job = (cluster.cost, self._update_graph, submission)
            queue.at(self._earliest, cluster.loop.submit, *job)

    def _update_graph(self, submission: Submission) -> None:
        cluster, all_keys = self.cluster, self.cluster.keys
        seconds = submission.handling_s
        if seconds is None:
            seconds = cluster.model.update_per_task * len(submission.tasks)
        self.submitted.append((self.queue.now, self.queue.now + seconds))
        cluster.loop.extra += seconds
        keys = [all_keys[index] for index in submission.tasks]
        wanted = [all_keys[index] for index in submission.wanted]
        self._wanted.update(wanted)
        if keys or wanted:
            dependencies = cluster.graph.dependencies
            graph = cluster.internals.new_graph(
                keys,
                {
                    all_keys[index]: [all_keys[other] for other in dependencies[index]]
                    for index in submission.tasks
                },
                {all_keys[index] for index in cluster.graph.producers},
                {all_keys[index]: given for index, given in cluster.options.items()},
            )
            self._packer.get(graph, wanted, sync=False)
            message = self._packer.messages.pop()
            message.pop("op")
            # A coroutine from 2023.5 on.
            update_graph = cluster.scheduler.stream_handlers["update-graph"]
            Internals.call_handler(update_graph, client=CLIENT, **message)
        if submission.released:
            cluster.scheduler.client_releases_keys(
                keys=[all_keys[index] for index in submission.released],
                client=CLIENT,
                stimulus_id=f"release-{self.queue.now}",
            )
        self.queue.after(0.0, self.notify_client, ())

    def notify_client(self, messages: Any) -> None:
        """Receive messages of the scheduler to the client."""
        for message in messages:
            if message["op"] == "key-in-memory":
                self._in_memory.add(message["key"])
            elif message["op"] in ("task-erred", "cancelled-keys", "lost-data"):
                raise SimulationError(f"the scheduler sent {message['op']}: {_error_of(message)}")
        self.submit()
        is_all = len(self.submitted) == len(self.cluster.graph.submissions)
        self.is_done = is_all and self._wanted <= self._in_memory

    def send(self, *messages: dict[str, Any]) -> None:
        """Deliver messages after the latency of the network; the scheduler calls it."""
        self.queue.after(self.cluster.model.latency, self.notify_client, messages)


def _error_of(message: Mapping[str, Any]) -> str:
    """Return the tasks and the error that a message of the scheduler names."""
    keys = message.get("keys") or [message.get("key")]
    text = ", ".join(map(str, keys))
    if "exception" not in message:
        return text
    try:
        error = pickle.loads(message["exception"])  # of the scheduler in this process
    except Exception:
        return text
    return f"{text}: {error_summary(error)}"


#: Seconds between two samples at first; doubled whenever there are more than `MAX_SAMPLES`.
INTERVAL_S = 0.05
MAX_SAMPLES = 200
#: Largest number of samples of workers, over all workers.
MAX_WORKER_SAMPLES = 40_000


class WorkerSample(NamedTuple):
    """State of a worker."""

    managed: int
    spilled: int
    peak: int
    executing: int
    ready: int
    in_memory: int
    n_received: int


class Sample(NamedTuple):
    """State of the scheduler and of its workers at a virtual time in s."""

    time: float
    lag: float
    busy: float
    n_tasks: int
    queued: int
    occupancy: float
    n_transitions: int
    workers: list[WorkerSample]


class Samples:
    """Take samples of a cluster; their number is limited."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.rows: list[Sample] = []
        self.interval = INTERVAL_S
        self.limit = max(20, min(MAX_SAMPLES, MAX_WORKER_SAMPLES // len(cluster.workers)))

    def start(self) -> None:
        """Take the first sample, and then one per interval."""
        self.take()
        self.cluster.queue.at(self.cluster.queue.now + self.interval, self.start)

    def take(self) -> None:
        """Take a sample; if there are too many, keep each second one."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        now = cluster.queue.now
        workers = []
        for worker in cluster.workers.values():
            state = worker.state
            peak, worker.peak = max(worker.peak, state.nbytes), state.nbytes
            spilled = worker.spilled
            workers.append(
                WorkerSample(
                    state.nbytes - spilled,
                    spilled,
                    peak,
                    len(state.executing),
                    len(state.ready),
                    len(worker.data),
                    worker.n_received,
                )
            )
        self.rows.append(
            Sample(
                now,
                max(0.0, cluster.loop.free - now),
                cluster.loop.busy,
                len(scheduler.tasks),
                len(getattr(scheduler, "queued", ())),
                sum(ws.occupancy for ws in scheduler.workers.values()),
                scheduler.transition_counter,
                workers,
            )
        )
        if len(self.rows) > self.limit:
            kept = self.rows[::2]
            for before, after in zip(self.rows[1::2], kept[1:], strict=False):
                highest = [
                    sample._replace(peak=max(sample.peak, other.peak))
                    for sample, other in zip(after.workers, before.workers, strict=True)
                ]
                after.workers[:] = highest
                # `lag` of the removed sample: the larger one stays known.
            self.rows = kept
            self.interval *= 2


T = TypeVar("T")
#: Ratio by which the phase of periodic callbacks changes from draw to draw.
GOLDEN_RATIO = 0.6180339887498949
#: Events without a finished task after which a simulation stops: nothing will happen any more.
MAX_IDLE_EVENTS = 2_000_000


class FinishedTask(NamedTuple):
    """A task as its worker reports it; times in virtual s."""

    key: Any
    worker: int
    thread: int
    nbytes: int
    start: float
    stop: float
    transfers: list[tuple[float, float, str]]


class VirtualCluster:
    """A cluster in virtual time. `run` executes its graph once."""

    def __init__(
        self, graph: VirtualGraph, shape: ClusterShape, model: Model | None = None, *, draw: int = 0
    ) -> None:
        import dask

        check_internals()
        check_graph(graph.keys)
        self.graph, self.shape, self.draw = graph, shape, draw
        self.model = (model or Model()).scaled()
        self.get = dask.config.get
        self.queue = EventQueue()
        self.loop = EventLoop(self.queue)
        self.internals = Internals(
            lambda: self.queue.now, lambda: MessageStream(self.queue, self.model)
        )
        self.phase = (0.5 + draw * GOLDEN_RATIO) % 1.0
        as_text = self.internals.as_text or (lambda key: key)
        self.keys = [stable_key(as_text(key), draw) for key in graph.keys]
        self.seconds = dict(zip(self.keys, graph.seconds, strict=True))
        self.nbytes = dict(zip(self.keys, map(int, graph.nbytes), strict=True))
        self.workers: dict[str, VirtualWorker] = {}
        self.finished: list[FinishedTask] = []
        self.ends: dict[Any, float] = {}  # Virtual time of the end of each finished task
        #: (source, destination) -> number, bytes and seconds of transfers.
        self.transfers: dict[tuple[int, int], list[float]] = {}
        self.counts: Counter[str] = Counter()
        #: Virtual times of the start and the end of the clock in s.
        self.started = self.stopped = 0.0
        self.client = VirtualClient(self)

    def run(self) -> None:
        """Simulate until the client has all results."""
        # No reference cycles arise: collecting garbage would take a sixth of the time.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            with self.internals.installed():
                run_to_end(self._run())
        finally:
            if was_enabled:
                gc.enable()

    async def _run(self) -> None:
        await self._open()
        self.client.submit()
        self._start_callbacks()
        queue, n_events, n_finished = self.queue, 0, 0
        while not self.client.is_done:
            queue.step()
            n_events += 1
            if n_events > MAX_IDLE_EVENTS:
                if len(self.finished) == n_finished:
                    states = Counter(task.state for task in self.scheduler.tasks.values())
                    raise SimulationError(f"no task finishes any more: {dict(states)}")
                n_events, n_finished = 0, len(self.finished)
        self.stopped = queue.now + self.graph.tail_s
        self.samples.take()
        self.n_transitions = self.scheduler.transition_counter

    async def _open(self) -> None:
        self.scheduler = scheduler = new_scheduler(self.internals)
        # Restrictions of tasks name workers: their addresses must stay the same objects, because
        # other texts have other hashes.
        coerce_address = scheduler.coerce_address
        scheduler.coerce_address = lambda address, resolve=True: coerce_address(address, False)
        self.cost = HandlerCost(
            scheduler, self.model.scheduler_call, self.model.scheduler_transition
        )
        scheduler.client_comms[CLIENT] = self.client
        for index in range(self.shape.workers):
            host = self.host_of(index)
            address = StableText(
                f"tcp://10.{host >> 16}.{host >> 8 & 255}.{host & 255}:{10_000 + index}", self.draw
            )
            worker = self.workers[address] = VirtualWorker(self, index, address)
            await scheduler.add_worker(
                _Comm(),
                address=address,
                status="running",
                server_id=StableText(f"worker-{index}", self.draw),
                nthreads=self.shape.threads,
                name=index,
                resolve_address=False,
                now=EPOCH,
                resources={},
                memory_limit=self.shape.memory_limit or None,
                metrics=worker.metrics(),
                services={},
                local_directory="",
                versions={},
                nanny="",
                extra={},
                stimulus_id=f"add-worker-{index}",
            )
            scheduler.stream_comms[address].connect(
                self.loop, self.cost, self.model.scheduler_batch, worker.deliver
            )
        self.samples = Samples(self)

    @property
    def options(self) -> dict[int, dict[str, Any]]:
        """Options of tasks by index, as `Client.submit` takes them."""
        graph, addresses = self.graph, list(self.workers)
        found: dict[int, dict[str, Any]] = {}
        for index, numbers in graph.workers.items():
            # As many, if there are fewer workers than numbers.
            chosen = sorted({number % len(addresses) for number in numbers})
            found[index] = {"workers": [addresses[number] for number in chosen]}
        for index, priority in graph.priority.items():
            found.setdefault(index, {})["priority"] = priority
        return found

    def host_of(self, index: int) -> int:
        """Return the number of a worker's host: one worker per host, all on one if they share."""
        return 0 if self.shape.shared_loop else index

    # -- periodic callbacks -------------------------------------------------------------------

    def _start_callbacks(self) -> None:
        from dask.utils import parse_timedelta

        extensions = self.scheduler.extensions
        stealing, memory_manager = extensions.get("stealing"), extensions.get("amm")
        if stealing is not None:
            interval = self.get("distributed.scheduler.work-stealing-interval", "100ms")
            self._repeat(parse_timedelta(interval, "ms"), self._balance, stealing)
        if memory_manager is not None and memory_manager.running:
            self._repeat(memory_manager.interval, memory_manager.run_once)
        interval = self._heartbeat_interval()
        for worker in self.workers.values():
            start = interval * ((worker.index + 1) / len(self.workers) + self.phase) % interval
            self.queue.at(start, self._beat, worker)
        self.samples.start()

    def _balance(self, stealing: Any) -> None:
        self.loop.extra += self.model.balance_per_worker * len(self.workers)
        stealing.balance()

    def _repeat(self, interval: float, call: Any, *args: Any) -> None:
        def again() -> None:
            self.loop.submit(self.cost, call, *args)
            self.queue.at(self.queue.now + interval, again)

        self.queue.at(self.queue.now + interval * self.phase, again)

    def _heartbeat_interval(self) -> float:
        return float(self.internals.scheduler_module.heartbeat_interval(len(self.workers)))

    def _beat(self, worker: VirtualWorker) -> None:
        worker.loop.submit(worker.cost, worker.beat)
        self.queue.at(self.queue.now + self._heartbeat_interval(), self._beat, worker)

    def heartbeat(self, message: Mapping[str, Any]) -> None:
        """Give a heartbeat to the scheduler; a job of its event loop."""
        self.scheduler.heartbeat_worker(**message)

    # -- messages of workers ------------------------------------------------------------------

    def receive(self, worker: VirtualWorker, messages: list[dict[str, Any]]) -> None:
        """Receive a batch of messages from a worker."""
        self.loop.submit(self.cost, self._read, worker, messages)

    def _read(self, worker: VirtualWorker, messages: list[dict[str, Any]]) -> None:
        self.loop.extra += self.model.batch_read + self.model.message_read * len(messages)
        handlers = self.scheduler.stream_handlers
        for message in messages:
            operation = message.pop("op")
            if operation == "task-finished":
                self._add_finished(worker, message)
            elif operation == "steal-response" and message["state"] in _STOLEN_STATES:
                self.counts["steals"] += 1
            Internals.call_handler(handlers[operation], worker=worker.address, **message)

    def _add_finished(self, worker: VirtualWorker, message: Mapping[str, Any]) -> None:
        transfers = []
        for entry in message["startstops"]:
            start, stop = entry["start"] - EPOCH, entry["stop"] - EPOCH
            if entry["action"] == "compute":
                times = start, stop
            elif entry["action"] == "transfer":
                transfers.append((start, stop, entry["source"]))
        key = message["key"]
        thread = worker.thread_of.pop(key)
        row = FinishedTask(key, worker.index, thread, message["nbytes"], *times, transfers)
        self.finished.append(row)
        self.ends[key] = row.stop

    def add_transfer(self, source: int, destination: int, nbytes: int, seconds: float) -> None:
        """Count a transfer."""
        row = self.transfers.setdefault((source, destination), [0, 0, 0.0])
        row[0] += 1
        row[1] += nbytes
        row[2] += seconds

    # -- results ------------------------------------------------------------------------------

    @property
    def duration(self) -> float:
        """Seconds from the start of the clock to the client's last step."""
        return self.stopped - self.started

    @property
    def digest(self) -> str:
        """Digest of (start, key, worker) of all tasks: equal for equal simulations."""
        rows = sorted((row.start, str(row.key), row.worker) for row in self.finished)
        return hashlib.sha256(repr(rows).encode()).hexdigest()


#: States of a task on a worker in which it can be stolen.
_STOLEN_STATES = ("ready", "constrained", "waiting")


class _Comm:
    """The connection of a new worker: its first message is discarded."""

    async def write(self, message: Any, **kwargs: Any) -> None:
        pass


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def new_scheduler(internals: Internals) -> Any:
    """Return a scheduler without servers and periodic callbacks."""
    # Any host: no server listens.
    scheduler = internals.scheduler_module.Scheduler(
        dashboard=False, validate=False, host="127.0.0.1"
    )
    for callback in list(scheduler.periodic_callbacks.values()):
        callback.stop()
    return scheduler


def simulate_graph(
    graph: VirtualGraph,
    shape: ClusterShape | None = None,
    model: Model | None = None,
    *,
    draw: int = 0,
    config: Mapping[str, Any] | None = None,
) -> VirtualCluster:
    """Simulate a graph once, in this process."""
    import dask

    with dask.config.set(dict(config or {})):
        cluster = VirtualCluster(graph, shape or ClusterShape(), model, draw=draw)
        cluster.run()
    return cluster
