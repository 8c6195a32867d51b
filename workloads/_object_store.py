"""A slow, unreliable store of local files, with given latency, bandwidth and errors."""

from __future__ import annotations

import threading
import time

#: Attribute of each process with bytes and requests by label of a store.
ATTRIBUTE = "benchkit_store_counts"


def slow_store(*, label, latency_s=0.0, bytes_per_s=0.0, fail_first=()):
    """Return an fsspec file system over local files.

    Parameters
    ----------
    label : str
        Name under which bytes and requests are counted, see `counts_of_worker`.
    latency_s : float
        Delay of each request in s.
    bytes_per_s : float
        Bandwidth of the requests of one thread in B/s; 0: unlimited.
    fail_first : iterable of str
        Files whose first request by any worker fails with an OSError; a marker file records it.
    """
    return _store_class()(
        label=label,
        latency_s=latency_s,
        bytes_per_s=bytes_per_s,
        fail_first=tuple(fail_first),
    )


def counts_of_worker(label):
    """Return a function for `Client.run` that returns bytes and requests of a store.

    The function resets the counts, so that a second call returns zeros.
    """

    def counts():
        kept = getattr(threading, ATTRIBUTE, {})
        return kept.pop(label, {"nbytes": 0, "requests": 0})

    return counts


def _make_store(options):
    return _store_class()(**options)


def _store_class():
    # Defined on use: collecting workloads imports Dask only. The class cannot be pickled, because
    # fsspec keeps locks in it: each process defines it again.
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.spec import AbstractBufferedFile

    class SlowFile(AbstractBufferedFile):
        def _fetch_range(self, start, end):
            return self.fs.cat_file(self.path, start=start, end=end)

    class SlowStore(LocalFileSystem):
        protocol = ("file", "local")
        cachable = False

        def __init__(self, *, label, latency_s, bytes_per_s, fail_first, **options):
            super().__init__(**options)
            self.label, self.latency_s, self.bytes_per_s = label, latency_s, bytes_per_s
            self.fail_first = tuple(fail_first)

        def __reduce__(self):
            options = {
                "label": self.label,
                "latency_s": self.latency_s,
                "bytes_per_s": self.bytes_per_s,
                "fail_first": self.fail_first,
            }
            return _make_store, (options,)

        def _open(self, path, mode="rb", block_size=None, **options):
            if mode != "rb":
                return super()._open(path, mode, block_size, **options)
            # Read only what was requested, without read-ahead.
            return SlowFile(self, path, mode, cache_type="none", size=self.size(path))

        def cat_file(self, path, start=None, end=None, **options):
            path = self._strip_protocol(path)
            time.sleep(self.latency_s)
            self._fail_once(path)
            with open(path, "rb") as file:
                file.seek(start or 0)
                data = file.read(None if end is None else end - (start or 0))
            if self.bytes_per_s:
                time.sleep(len(data) / self.bytes_per_s)
            self._count(len(data))
            return data

        def _fail_once(self, path):
            if path not in self.fail_first:
                return
            try:
                open(path + ".failed", "x").close()
            except FileExistsError:
                return
            self._count(0)
            raise OSError(f"{path}: the simulated store failed this request")

        def _count(self, nbytes):
            # Keep the counts in a module of each process, which defines this class again.
            if not hasattr(threading, ATTRIBUTE):
                setattr(threading, ATTRIBUTE, {})
            kept = getattr(threading, ATTRIBUTE)
            counts = kept.setdefault(self.label, {"nbytes": 0, "requests": 0})
            counts["nbytes"] += nbytes
            counts["requests"] += 1

    return SlowStore
