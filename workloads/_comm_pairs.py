"""Two ends of a connection of distributed, without a scheduler."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress


def run_in_new_thread(make):
    """Run a coroutine in a new thread, and return its result.

    The main thread may have a running event loop, as in a notebook.
    """
    reports = {}

    def run():
        try:
            reports["value"] = asyncio.run(make())
        except BaseException as error:
            reports["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in reports:
        raise reports["error"]
    return reports["value"]


@asynccontextmanager
async def echoing(protocol):
    """Listen on this machine and send messages back; yield the address and options to connect with.

    The connection is served until the other end closes it.
    """
    from distributed.comm import CommClosedError, listen

    security = _security() if protocol == "tls" else None

    async def echo(comm):
        with suppress(CommClosedError):
            while True:
                await comm.write(await comm.read())

    address = "inproc://" if protocol == "inproc" else f"{protocol}://127.0.0.1:0"
    options = security.get_listen_args("scheduler") if security else {}
    async with listen(address, echo, **options) as listener:
        yield listener.contact_address, security.get_connection_args("client") if security else {}


def _security():
    from benchkit.measure.errors import MissingPackage

    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingPackage("cryptography, for temporary certificates: not installed") from error
    from distributed import Security

    return Security.temporary()
