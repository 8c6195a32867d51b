"""Event loops for tests."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run_in_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run in a new thread: this thread may have an event loop, of Playwright for example."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, coroutine).result()
