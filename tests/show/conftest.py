"""Fixtures of the page tests: a browser page that records errors."""

import contextlib
import threading

import psutil
import pytest

#: Report an error on every visited page when a hostile string sets the variable `hacked`.
TRAP = """
let hacked;
Object.defineProperty(window, "hacked", {
    get: () => hacked,
    set: (value) => { hacked = value; console.error("a hostile string was run"); },
});
"""


def _is_error(message):
    # A page that is still open when its test stops the server tries to reconnect.
    return message.type == "error" and "ERR_CONNECTION_REFUSED" not in message.text


@pytest.fixture
def page(browser):
    """Yield a page that fails the test on errors, foreign requests, or script in a run's text."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.add_init_script(TRAP)
    page = context.new_page()
    page.set_default_timeout(60_000)
    trouble = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda m: trouble.append(m.text) if _is_error(m) else None)
    page.on(
        "request",
        lambda r: None if "127.0.0.1" in r.url or r.url.startswith(("data:", "blob:", "file:"))
        else trouble.append(f"request to {r.url}"),
    )  # fmt: skip
    yield page
    # Chromium hung once in `context.close` until its page process was killed.
    rescue = threading.Timer(60, _kill_pages)
    rescue.daemon = True
    rescue.start()
    context.close()
    rescue.cancel()
    assert trouble == []


def _kill_pages():
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "--type=renderer" in process.cmdline():
                process.kill()
