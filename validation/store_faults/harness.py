"""Cause faults in operations of a store and check what they leave.

Each injection is one operation on a small store in a forked process, with one fault at one step.
Then, without faults: what was there, and what the operation confirmed, is there with equal bytes;
each visible file is complete; a check reports what is missing and repairs it; the operation can be
done again (for odd numbers before the check). Injection number N of a seed is always the same.
"""

import gc
import itertools
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchkit import whole_file
from benchkit.errors import BenchkitError
from benchkit.store import index
from benchkit.store.files import LocalFiles
from benchkit.store.storage import run_name
from benchkit.store.store import Store
from validation.store_faults.operations import NEW, OLD, OLD_IDS, OPERATIONS, unequal_files
from validation.store_faults.steps import FILE_FAULTS, SYSTEM_FAULTS, FileFaults, SystemFaults

#: Seconds after which an operation or a check is considered to hang: more than either needs when
#: other programs keep the machine busy.
HANG_S = 300
#: Segments above which an index is compacted during the injections: few, because reading each takes
#: a millisecond.
COMPACT_SEGMENTS = 2
#: Conditions at the start: no store; runs that are not compacted; an index that must be compacted;
#: a file system without hard links.
SHAPES = ("new", "records", "segments", "no links")


class HangError(BaseException):
    """Raised at the end of `HANG_S`; no OSError, which the store reports as a broken file."""


@dataclass(frozen=True)
class Case:
    """An operation on a store of one shape, with one fault at one step."""

    operation: str
    shape: str
    fault: str
    step: int
    step_name: str

    def __str__(self) -> str:
        place = f"step {self.step} ({self.step_name})"
        return f"{self.operation} on {self.shape}: {self.fault} at {place}"


@dataclass
class Injection:
    """One injection and its result."""

    number: int
    case: Case
    outcome: str = ""
    error: str = ""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.number}: {self.case}: {self.outcome} {self.error}".strip()


class Harness:
    """Templates of stores in a folder (best in memory), and all cases in an order by the seed."""

    #: Operation -> function, and the faults in the order of the table.
    operations = OPERATIONS
    faults: tuple[str, ...] = (*SYSTEM_FAULTS, *FILE_FAULTS)

    def __init__(
        self, folder: Path, seed: int, open_files: Callable[[Path], Any] = LocalFiles
    ) -> None:
        self.folder, self.seed, self.open_files = folder, seed, open_files
        index.MAX_SEGMENTS = COMPACT_SEGMENTS
        whole_file.CLAIM_WAIT_S = 0.02
        pa.set_cpu_count(1)  # threads make small reads slower
        self.templates: dict[str, Path] = {}
        self.content: dict[str, dict[str, str]] = {}
        for shape in SHAPES:
            self._make_template(shape)
        self.cases = list(self._cases())
        random.Random(seed).shuffle(self.cases)
        gc.collect()
        gc.freeze()  # forked processes share these objects

    def _make_template(self, shape: str) -> None:
        path = self.templates[shape] = self.folder / f"template-{shape}"
        source = Store(path / "source")
        source.add_many(NEW)
        source.mark("exclude", runs=[NEW[0].attrs["id"]])
        if shape != "new":
            store = Store(path / "store")
            for tree in OLD:
                store.add_many([tree]) if shape == "segments" else store.add(tree)
            store.mark("exclude", runs=[OLD_IDS[1]])
            store.add_event("night", runs=4)
            store.files.create(f"experiments/{OLD_IDS[0]}/plan.json", b"{}")
        store_files = LocalFiles(path / "store")
        self.content[shape] = {
            name: sha256(store_files.read(name)).hexdigest()
            for name in store_files.walk()
            if not name.startswith("index")
        }

    def _cases(self) -> Iterator[Case]:
        for operation, shape in itertools.product(self.operations, SHAPES):
            for layer, faults in (("system", SYSTEM_FAULTS), ("files", FILE_FAULTS)):
                if layer == "system" and self.open_files is not LocalFiles:
                    continue
                case = Case(operation, shape, layer, sys.maxsize, "")
                with self._stage(shape, "count") as stage:
                    steps = self._perform(stage, case, 0)["steps"]
                for (number, name), (fault, where) in itertools.product(
                    enumerate(steps), faults.items()
                ):
                    if where is None or name in where:
                        yield Case(operation, shape, fault, number, name)

    @contextmanager
    def _stage(self, shape: str, name: str) -> Iterator[Any]:
        """Yield a copy of a template; files are shared, because a store never changes them."""
        stage, template = self.folder / name, self.templates[shape]
        for folder, _, names in os.walk(template):
            target = stage / Path(folder).relative_to(template)
            target.mkdir()
            for file in names:
                os.link(f"{folder}/{file}", target / file)
        try:
            yield stage
        finally:
            for folder, _, names in os.walk(stage, topdown=False):
                for file in names:
                    os.unlink(f"{folder}/{file}")
                os.rmdir(folder)

    # -- one injection ----------------------------------------------------------------------------

    def inject(self, number: int) -> Injection:
        """Cause the fault of a number and check the store; after all cases they begin again."""
        case = self.cases[number % len(self.cases)]
        done = Injection(number, case)
        with self._stage(case.shape, f"stage-{number}") as stage:
            try:
                answer = self._perform(stage, case, self.seed + number)
                done.outcome, done.error = answer["outcome"], answer["error"]
                done.problems = self._problems(stage, done, answer)
            except HangError as error:
                done.outcome, done.problems = "hangs", [f"no end after {HANG_S} s: {error}"]
            except Exception as error:
                lines = traceback.format_exception(error)
                done.problems = [f"the check of the result fails: {''.join(lines[-3:])}"]
        return done

    def _perform(self, stage: Path, case: Case, seed: int) -> dict[str, Any]:
        """Perform the operation in a forked process; return its answer."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            try:
                answer = self._operate(stage, case, seed)
            except BaseException as error:
                answer = {"outcome": "crashed", "error": repr(error), "steps": [], "result": None}
            os.write(writer, pickle.dumps(answer))
            os._exit(0)
        os.close(writer)
        with _limit("the operation"):
            _, status = os.waitpid(child, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                self._meanwhile(stage, case)
                os.kill(child, signal.SIGCONT)
                _, status = os.waitpid(child, 0)
        data = os.read(reader, 2**20)
        os.close(reader)
        if os.WIFSIGNALED(status):
            return {"outcome": "killed", "error": "", "steps": [], "result": None}
        return dict(pickle.loads(data))

    def _operate(self, stage: Path, case: Case, seed: int) -> dict[str, Any]:
        """Perform the operation with its fault, in the forked process."""
        warnings.simplefilter("ignore")
        store = Store(stage / "store")
        store.files = store.index.files = self.open_files(stage / "store")
        fault = case.fault if case.step < sys.maxsize else ""
        faults: SystemFaults | FileFaults
        if case.fault in (*SYSTEM_FAULTS, "system"):
            links = case.shape != "no links"
            faults = SystemFaults(fault, case.step, seed, str(stage), links)
            faults.install()
        else:
            faults = FileFaults(fault, case.step, seed, store.files)
            store.files = store.index.files = faults  # type: ignore[assignment]
        outcome, error, result = "confirmed", "", None
        try:
            result = self.operations[case.operation](store)
        except (BenchkitError, OSError) as caught:
            outcome, error = "refused", str(caught)
        except BaseException as caught:
            outcome, error = "crashed", "".join(traceback.format_exception(caught)[-3:])
        return {
            "outcome": outcome if faults.happened or not fault else "not reached",
            "error": error,
            "result": result,
            "steps": faults.steps,
        }

    def _meanwhile(self, stage: Path, case: Case) -> None:
        """Use the store while the process of the operation is stopped."""
        store = Store(stage / "store")
        if case.fault == "stopped, index compacted":
            store.compact()
        elif case.fault == "stopped, run pruned":
            store.prune(OLD_IDS[2:])
        else:
            for name in store.files.list("tmp"):
                os.utime(store.files.path(name), (time.time() - 2 * 86400,) * 2)
            store.check()

    # -- what must hold ---------------------------------------------------------------------------

    def _open(self, stage: Any) -> Store:
        return Store(stage / "store")

    def _problems(self, stage: Any, done: Injection, answer: dict[str, Any]) -> list[str]:
        case, number = done.case, done.number
        problems: list[str] = []

        def require(holds: Any, text: str) -> None:
            if not holds:
                problems.append(text)

        confirmed = answer["outcome"] in ("confirmed", "not reached")
        require(answer["outcome"] != "crashed", f"not an error of benchkit: {answer['error']}")
        require("\n" not in answer["error"], "the error has several lines")
        with _limit("a check of the store"):
            store = self._open(stage)
            before = self.content[case.shape]
            problems += unequal_files(store.files, before)
            left = store.files.list("tmp")
            denied = case.fault in ("no permission", "read-only")
            if answer["outcome"] != "killed" and not denied:
                require(not left, f"unfinished writes: {left}")
            if confirmed:
                self._require_effect(store, case, require)
            if number % 2:  # the user tries again at once
                self.operations[case.operation](store)
                self._require_effect(store, case, require)
                confirmed = True
            report = store.check(repair=False)
            for name in ("unreadable", "damaged_index", "strangers", "missing"):
                require(not getattr(report, name), f"{name}: {getattr(report, name)}")
            unlisted = set(report.orphans)
            require(unlisted <= {t.attrs["id"] for t in NEW}, f"not listed: {report.orphans}")
            require(not (confirmed and unlisted), f"confirmed, but not listed: {report.orphans}")
            report = store.check(quick=True)
            require(report.healthy, f"not healthy after a repair: {report}")
            store = self._open(stage)
            present = {Path(name).stem for name in store.files.walk("runs")}
            require(set(store.ids()) == present, "after a repair index and files differ")
            if not number % 2:
                self.operations[case.operation](store)
                self._require_effect(store, case, require)
            problems += unequal_files(store.files, before)
        return problems

    def _require_effect(
        self, store: Store, case: Case, require: Callable[[Any, str], None]
    ) -> None:
        """Require what a confirmed operation promises."""
        n_new = {"add": 1, "add_many": 2, "copy": 3}.get(case.operation, 0)
        ids = set(store.ids())
        for tree in NEW[:n_new]:
            require(tree.attrs["id"] in ids, f"confirmed run {tree.attrs['id']} is not listed")
            require(tree.attrs["id"] in store, f"confirmed run {tree.attrs['id']} has no file")
        has_old = case.shape != "new"
        if case.operation == "mark":
            kind = len(store.marks()) - 1 if has_old else len(store.events())
            require(kind >= 1, "the confirmed mark or event is missing")
        if case.operation == "copy":
            require(store.marks(), "the mark was not copied")
        pruned = {"prune": OLD_IDS[:1]}.get(case.operation, [])
        if case.fault == "stopped, run pruned":
            pruned = [*pruned, *OLD_IDS[2:]]
        if has_old:
            for run_id in set(OLD_IDS) - set(pruned):
                require(run_id in ids, f"run {run_id} is not listed any more")
            for run_id in pruned:
                # A compaction that was stopped in the meantime lists it again until a check.
                may_be_listed = case.fault.startswith("stopped")
                require(may_be_listed or run_id not in ids, f"pruned run {run_id} is listed")
                trashed = store.files.exists(f"trash/{run_name(run_id)}")
                require(trashed, f"pruned run {run_id} is not in the trash")


@contextmanager
def _limit(what: str) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise HangError(what)

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def folder_harness(seed: int) -> Iterator[Harness]:
    """Yield a harness for stores in a folder."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="store-faults-", dir=memory if memory.is_dir() else None
    ) as folder:
        yield Harness(Path(folder), seed)
