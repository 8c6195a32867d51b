"""A dashboard visitor without a browser, because this machine cannot run twenty browsers.

Requests a page, opens the websocket that its scripts would open, and reports that it is drawn. The
server then sends the content of the page: its first screen, and the part below it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

#: A message longer than this is the content of the page; all others are shorter.
CONTENT_BYTES = 10_000
_COME = '"attr":"tags"'
_DRAWN = {
    "kind": "MessageSent",
    "msg_type": "bokeh_event",
    "msg_data": {"type": "event", "name": "document_ready", "values": {"type": "map"}},
}


async def visit(site: str, query: str, timeout_s: float = 120) -> tuple[float, float, float]:
    """Return seconds until a page, its first screen, and its whole content were received."""
    began = time.perf_counter()
    answer = await AsyncHTTPClient().fetch(f"{site}?{query}", request_timeout=timeout_s)
    sent_s = time.perf_counter() - began
    found = re.search(rb'"token":"([^"]+)"', answer.body)
    assert found, "a page without a token of its session"
    token = found[1].decode()
    request = HTTPRequest(
        f"{site.replace('http', 'ws', 1)}ws",
        headers={"Sec-WebSocket-Protocol": f"bokeh, {token}", "Origin": site.rstrip("/")},
    )
    connection = await websocket_connect(
        request, subprotocols=["bokeh", token], max_message_size=2**28
    )
    try:
        return sent_s, *(await asyncio.wait_for(_content(connection, began), timeout_s))
    finally:
        connection.close()


async def _content(connection: WebSocketClientConnection, began: float) -> tuple[float, float]:
    kind, _, _ = await _message(connection)
    assert kind == "ACK", kind
    await _say(connection, "PULL-DOC-REQ", {})
    kind, text, size = await _message(connection)
    await _say(connection, "PATCH-DOC", {"events": [_DRAWN]})
    while size < CONTENT_BYTES:
        kind, text, size = await _message(connection)
    first_s = time.perf_counter() - began
    # A placeholder for missing content has this tag, which is removed when the content arrives.
    coming = '"coming"' in text
    while coming:
        kind, text, size = await _message(connection)
        coming = _COME not in text
    return first_s, time.perf_counter() - began


async def _say(connection: WebSocketClientConnection, kind: str, content: Any) -> None:
    for part in ({"msgid": kind, "msgtype": kind}, {}, content):
        await connection.write_message(json.dumps(part))


async def _message(connection: WebSocketClientConnection) -> tuple[str, str, int]:
    """Return the kind of the next message, its text, and its bytes."""
    head = json.loads(await _part(connection))
    rest = [await _part(connection) for _ in range(2 + 2 * head.get("num_buffers", 0))]
    return head["msgtype"], str(rest[1]), sum(len(part) for part in rest)


async def _part(connection: WebSocketClientConnection) -> str | bytes:
    part = await connection.read_message()
    if part is None:
        raise ConnectionError("the server closed the connection")
    return part
