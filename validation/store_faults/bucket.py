"""Cause faults in the requests of operations on a store in a bucket.

As `harness`, with an emulated S3 server behind a proxy: each injection disturbs one request
of one operation, or this request and all after it, as when the client is killed or its network is
gone. Then, without faults, the same must hold as for a store in a folder.
"""

import itertools
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchkit.errors import BenchkitError
from benchkit.store import bucket
from benchkit.store.bucket import BucketFiles
from benchkit.store.files import LocalFiles
from benchkit.store.store import Store
from validation import s3_server
from validation.fault_proxy import FaultProxy
from validation.store_faults.harness import SHAPES, Case, Harness
from validation.store_faults.operations import OPERATIONS

#: Fault -> kinds of the requests from its step on; "*" stands for all following requests.
_FAULTS = {
    "unavailable": ["unavailable"],
    "five unavailable": ["unavailable"] * 5,
    "reset": ["reset"],
    "answer lost": ["lost"],
    "answer lost, then reset": ["lost", "reset"],
    "connection gone": ["*"],
    "answer lost, then gone": ["lost", "*"],
}
#: Seconds for which a request is repeated.
_RETRY_S = 1.5
#: Seconds without an answer after which a request fails; no fault here is a silent server.
_SILENT_S = 300.0


class BucketHarness(Harness):
    """Cases of a store in a bucket behind a proxy, whose address is ``AWS_ENDPOINT_URL``."""

    faults = tuple(_FAULTS)

    def __init__(self, folder: Path, seed: int, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.operations = {**OPERATIONS, "copy": self._copy}
        super().__init__(folder, seed)

    def _copy(self, store: Store) -> Any:
        return Store(self.templates["new"] / "source").copy(store)

    def _cases(self) -> Iterator[Case]:
        for operation, shape in itertools.product(self.operations, SHAPES[:3]):
            case = Case(operation, shape, "", sys.maxsize, "")
            with self._stage(shape, "count") as stage:
                n_requests = len(self._perform(stage, case, 0)["steps"])
            for step, fault in itertools.product(range(n_requests), _FAULTS):
                yield Case(operation, shape, fault, step, "request")

    @contextmanager
    def _stage(self, shape: str, name: str) -> Iterator[Any]:
        """Yield the address of a copy of a template."""
        url = f"s3://{s3_server.BUCKET}/{uuid4().hex}"
        template, files = LocalFiles(self.templates[shape] / "store"), BucketFiles(url)
        for path in template.walk():
            files.create(path, template.read(path))
        yield url
        files.delete(*files.walk())

    def _open(self, stage: Any) -> Store:
        return Store(stage)

    def _perform(self, stage: Any, case: Case, seed: int) -> dict[str, Any]:
        store = self._open(stage)
        kinds = _FAULTS.get(case.fault, [])
        self.proxy.counts.clear()
        if kinds:
            self.proxy.next = [*[""] * case.step, *(kind for kind in kinds if kind != "*")]
            self.proxy.then = "reset" if "*" in kinds else ""
        outcome, error, result = "confirmed", "", None
        try:
            result = self.operations[case.operation](store)
        except BenchkitError as caught:
            outcome, error = "refused", str(caught)
        except Exception as caught:
            outcome, error = "crashed", "".join(traceback.format_exception(caught)[-3:])
        finally:
            self.proxy.next, self.proxy.then = [], ""
        counts = self.proxy.counts
        happened = counts.total() > counts[""]
        return {
            "outcome": outcome if happened or not kinds else "not reached",
            "error": error,
            "result": result,
            "steps": [""] * counts.total(),
        }


@contextmanager
def bucket_harness(seed: int) -> Iterator[BucketHarness]:
    """Yield a harness for stores in a bucket of an emulated server."""
    bucket.RETRY_S, bucket.SILENT_S = _RETRY_S, _SILENT_S
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    with (
        tempfile.TemporaryDirectory(prefix="store-faults-") as folder,
        s3_server.emulator() as server,
        FaultProxy(server, {}) as proxy,
    ):
        os.environ |= {**s3_server.variables(proxy.url), "BENCHKIT_CACHE": f"{folder}/cache"}
        yield BucketHarness(Path(folder), seed, proxy)
