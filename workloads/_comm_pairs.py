"""Two ends of a connection of distributed's own, without a scheduler between them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress


def apart(make):
    """Run a coroutine in a thread of its own, and return what it returns.

    The main thread may have an event loop already, as in a notebook.
    """
    told = {}

    def run():
        try:
            told["value"] = asyncio.run(make())
        except BaseException as error:
            told["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in told:
        raise told["error"]
    return told["value"]


@asynccontextmanager
async def echoing(protocol):
    """Listen on this machine; yield the address and the options to connect with.

    What comes in is sent back, until the other end hangs up.
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
