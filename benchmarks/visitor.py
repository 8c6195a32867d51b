"""A dashboard visitor without a browser, whose CPU use would slow down the measured server.

Requests a page, opens the websocket that its scripts would open, and reports that it is drawn. The
server then sends the content of the page: the first part, and the parts below it.
"""

import asyncio
import json
import re
import time
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

#: What `visit` waits for, in order.
PARTS = ("page", "first content", "all content")
#: Messages with content of the page are longer than this number of bytes; all others are shorter.
CONTENT_BYTES = 10_000
#: Tag of a placeholder; the message with the missing content removes it.
_PLACEHOLDER_TAG = '"coming"'
_TAG_REMOVED = '"attr":"tags"'
_DOCUMENT_READY = {
    "kind": "MessageSent",
    "msg_type": "bokeh_event",
    "msg_data": {"type": "event", "name": "document_ready", "values": {"type": "map"}},
}


async def visit(
    site: str,
    query: str,
    timeout_s: float = 120,
    sizes: list[int] | None = None,
    stay_s: float = 0.0,
) -> tuple[float, float, float]:
    """Return seconds until each of `PARTS` was received; add the messages' bytes to `sizes`.

    The connection stays open for `stay_s` after the last part.
    """
    sizes = [] if sizes is None else sizes
    began = time.perf_counter()
    # Tornado's own limits are 20 s, also for the opening of a websocket.
    limits = {"connect_timeout": timeout_s, "request_timeout": timeout_s}
    response = await AsyncHTTPClient().fetch(f"{site}?{query}", **limits)
    page_s = time.perf_counter() - began
    match = re.search(rb'"token":"([^"]+)"', response.body)
    assert match, "page without a session token"
    token = match[1].decode()
    request = HTTPRequest(
        f"{site.replace('http', 'ws', 1)}ws",
        headers={"Sec-WebSocket-Protocol": f"bokeh, {token}", "Origin": site.rstrip("/")},
        **limits,
    )
    connection = await websocket_connect(
        request, subprotocols=["bokeh", token], max_message_size=2**28
    )
    try:
        times = await asyncio.wait_for(_content(connection, began, sizes), timeout_s)
        await asyncio.sleep(stay_s)
        return page_s, *times
    finally:
        connection.close()


async def _content(
    connection: WebSocketClientConnection, began: float, sizes: list[int]
) -> tuple[float, float]:
    kind, _, _ = await _receive(connection)
    assert kind == "ACK", kind
    await _send(connection, "PULL-DOC-REQ", {})
    kind, text, size = await _receive(connection)
    await _send(connection, "PATCH-DOC", {"events": [_DOCUMENT_READY]})
    sizes.append(size)
    while size < CONTENT_BYTES:
        kind, text, size = await _receive(connection)
        sizes.append(size)
    first_s = time.perf_counter() - began
    is_complete = _PLACEHOLDER_TAG not in text
    while not is_complete:
        kind, text, size = await _receive(connection)
        sizes.append(size)
        is_complete = _TAG_REMOVED in text
    return first_s, time.perf_counter() - began


async def _send(connection: WebSocketClientConnection, kind: str, content: Any) -> None:
    for part in ({"msgid": kind, "msgtype": kind}, {}, content):
        await connection.write_message(json.dumps(part))


async def _receive(connection: WebSocketClientConnection) -> tuple[str, str, int]:
    """Return the kind of the next message, its text, and its size in B."""
    header = json.loads(await _read_part(connection))
    rest = [await _read_part(connection) for _ in range(2 + 2 * header.get("num_buffers", 0))]
    return header["msgtype"], str(rest[1]), sum(len(part) for part in rest)


async def _read_part(connection: WebSocketClientConnection) -> str | bytes:
    part = await connection.read_message()
    if part is None:
        raise ConnectionError("the server closed the connection")
    return part
