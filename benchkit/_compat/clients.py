"""Calls a function when a client of distributed has connected, and before it closes.

Each way in which a client opens or closes passes the wrapped methods, also those of asynchronous
clients and of distributed's test functions. Checked with distributed 2023.4.1 to 2026.8.0.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from distributed import Client


class Watcher(NamedTuple):
    """Functions of a client that may block; they are not called in the client's event loop."""

    connected: Callable[[Client], None]
    closing: Callable[[Client], None]


_watchers: list[Watcher] = []
_originals: dict[str, Any] = {}


def watch(watcher: Watcher) -> None:
    """Call the functions of a watcher for each client of this process, until `unwatch`."""
    if not _watchers:
        _wrap()
    _watchers.append(watcher)


def unwatch(watcher: Watcher) -> None:
    """Call the functions of a watcher no longer."""
    _watchers.remove(watcher)
    if not _watchers:
        for name, original in _originals.items():
            setattr(Client, name, original)
        _originals.clear()


def _wrap() -> None:
    for name in ("_start", "_close", "_shutdown", "close"):
        _originals[name] = vars(Client)[name]
    start, close = _originals["_start"], _originals["close"]

    @functools.wraps(start)
    async def started(client: Client, *args: Any, **kwargs: Any) -> Any:
        result = await start(client, *args, **kwargs)
        await asyncio.to_thread(_call, "connected", client)
        return result

    @functools.wraps(close)
    def closed(client: Client, *args: Any, **kwargs: Any) -> Any:
        # `close` sets a status in which the client sends nothing more.
        if client.status != "running":
            return close(client, *args, **kwargs)
        if not client.asynchronous:
            _call("closing", client)
            return close(client, *args, **kwargs)

        async def close_later() -> Any:
            await asyncio.to_thread(_call, "closing", client)
            return await close(client, *args, **kwargs)

        return close_later()

    wrapped = {"_start": started, "close": closed}
    for name in ("_close", "_shutdown"):
        wrapped[name] = _after_closing(_originals[name])
    for name, function in wrapped.items():
        setattr(Client, name, function)


def _after_closing(original: Any) -> Any:
    @functools.wraps(original)
    async def closed(client: Client, *args: Any, **kwargs: Any) -> Any:
        await asyncio.to_thread(_call, "closing", client)
        return await original(client, *args, **kwargs)

    return closed


def _call(name: str, client: Client) -> None:
    for watcher in tuple(_watchers):  # a block may end meanwhile
        getattr(watcher, name)(client)
