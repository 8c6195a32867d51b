"""Serve the dashboard of one store with one or several processes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.process import task_id
from tornado.web import Application, ErrorHandler, OutputTransform

from benchkit.captured_process import end_processes
from benchkit.errors import UsageError, needs_extra
from benchkit.store.store import Store

#: Seconds between checks that the parent process is alive.
PARENT_CHECK_S = 0.5
#: Free ports that are tried.
PORT_ATTEMPTS = 5
#: Thresholds of the garbage collector: a page creates about 100,000 objects, most of which live as
#: long as its session.
GC_THRESHOLDS = (20_000, 20, 20)
#: Panel's own login page loads images from a CDN.
LOGIN_PAGE = Path(__file__).with_name("login.html")


def serve(
    store: str | None = None,
    *,
    port: int = 5006,
    address: str = "127.0.0.1",
    prefix: str = "",
    use_xheaders: bool = False,
    show: bool = False,
    origins: Sequence[str] = (),
    login: Mapping[str, str] | None = None,
    oauth_users: Sequence[str] = (),
    allow_marks: bool = False,
    insecure: bool = False,
    follow: str | None = None,
    num_procs: int = 1,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the dashboard until it is interrupted."""
    run_store = Store(store, create=False)
    login = dict(login or {})
    _check_origins(origins)
    _check_login(address, origins, login, oauth_users, allow_marks, insecure)
    if num_procs > 1 and not hasattr(os, "fork"):
        raise UsageError("--num-procs: this system cannot fork a process; leave it out")
    _free_port(address, port)  # refused before the imports, which take a second
    os.environ["BENCHKIT_STORE"] = run_store.files.address
    os.environ.setdefault("BOKEH_RESOURCES", "server")  # nothing from a CDN
    with needs_extra("show"):
        import panel as pn

        from benchkit._compat.panel import login_arguments, tornado_application
        from benchkit.show.dashboard.app import application
        from benchkit.show.dashboard.components.mark_form import MARKS_VARIABLE
        from benchkit.show.dashboard.live import FOLLOW_VARIABLE
        from benchkit.show.dashboard.state.cache import workload_catalogue
    arguments = login_arguments(login)
    if oauth_users:
        pn.config.authorize_callback = account_filter(oauth_users)
    os.environ[MARKS_VARIABLE] = "1" if allow_marks else ""
    os.environ[FOLLOW_VARIABLE] = follow or ""
    parent = os.getpid()
    path = f"/{prefix.strip('/')}/" if prefix.strip("/") else "/"

    def serve_on(port: int) -> Any:
        return pn.serve(
            {"/": application},
            port=port,
            address=address,
            prefix=path.rstrip("/"),
            root_path=path,  # where the login page leads
            use_xheaders=use_xheaders,
            show=False,
            start=False,
            verbose=False,
            # Bokeh reads the text after the first colon as the port.
            websocket_origin=list(origins)
            or [f"{name}:{port}" for name in own_names(address) if ":" not in name],
            title="benchkit",
            login_template=str(LOGIN_PAGE),
            **({"num_procs": num_procs} if num_procs > 1 else {}),
            **arguments,
        )

    handler = signal.getsignal(signal.SIGINT)
    try:
        server, port = _bind(serve_on, address, port)
    except KeyboardInterrupt:  # in the parent of several processes
        end_processes(psutil.Process().children())
        raise
    if num_procs == 1:
        with suppress(TypeError, ValueError):  # another thread, or no handler of Python
            signal.signal(signal.SIGINT, handler)  # Panel replaces it: Ctrl-C then means success
    url = f"http://{address if ':' not in address else f'[{address}]'}:{port}{path}"
    protect(tornado_application(server), address, origins)
    # With several processes, every child runs from here on; the parent waits in pn.serve.
    if num_procs > 1:
        watch = threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True)
        watch.start()
    # Before the first session: Panel inspects sys.modules while it makes a page, and collecting
    # workloads removes modules from there.
    workload_catalogue()
    server.start()
    if not task_id():  # the first or only process
        ready(url)
        if show:
            server.io_loop.add_callback(server.show, "/")
    threading.Thread(target=_warm_up, name="benchkit-warm-up", daemon=True).start()
    server.io_loop.start()
    if num_procs > 1:
        # Exit without interpreter shutdown, which can wait forever for the warm-up thread if that
        # is importing a module.
        os._exit(0)


def _warm_up() -> None:
    """Make the first page, fill the cache, then exclude existing objects from garbage collection.

    A full collection took 0.2 s while a page was made.
    """
    from benchkit.show.dashboard.live import FOLLOW_VARIABLE
    from benchkit.show.dashboard.state.nights import warm_up

    if not os.environ.get(FOLLOW_VARIABLE):  # that page is updated for as long as it is open
        with suppress(Exception):  # the page of a visitor reports errors
            _make_first_page()
    warm_up()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _make_first_page() -> None:
    """Make the page without a visitor: reads its data, and compiles templates, 0.2 s of CPU."""
    from bokeh.document import Document
    from panel.io.state import set_curdoc

    from benchkit.show.dashboard.app import application

    document = Document()
    with set_curdoc(document):
        application().server_doc(document)


def _exit_with_parent(parent: int) -> None:
    """Exit this process when its parent has ended, also if the parent was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(0)


def account_filter(users: Sequence[str]) -> Callable[[Mapping[str, Any] | None], bool]:
    """Return Panel's authorization callback for a list of accounts.

    Compares the fields that the provider verifies, not the display name, which users can change.
    """
    allowed = {user.casefold() for user in users}
    fields = ("login", "email", "username", "upn")

    def is_allowed(info: Mapping[str, Any] | None) -> bool:
        return any(str((info or {}).get(name, "")).casefold() in allowed for name in fields)

    return is_allowed


def _check_origins(origins: Sequence[str]) -> None:
    # Bokeh accepts every host for `*:5006` and `*:*`, too. With any listening address, also a
    # local one, a foreign web page in a user's browser could then read the store.
    for origin in origins:
        if host_of(origin) == "*":
            raise UsageError(
                f"--allow-websocket-origin {origin!r} lets any web page read the store through "
                "the browsers of its visitors: name the hosts"
            )


def _check_login(
    address: str,
    origins: Sequence[str],
    login: Mapping[str, str],
    oauth_users: Sequence[str],
    allow_marks: bool,
    insecure: bool,
) -> None:
    """Raise if strangers could read, or write marks, and the options do not say so."""
    basic_auth = login.get("basic-auth")
    has_oauth = bool(login.get("oauth-provider") or os.environ.get("PANEL_OAUTH_PROVIDER"))
    if basic_auth and not Path(basic_auth).is_file():  # Panel takes it as the password then
        raise UsageError(f"--basic-auth {basic_auth!r}: no such file of users and passwords")
    if basic_auth and not (login.get("cookie-secret") or os.environ.get("PANEL_COOKIE_SECRET")):
        raise UsageError("--basic-auth needs --cookie-secret, which signs the visitors' cookies")
    if basic_auth and has_oauth:
        raise UsageError("--basic-auth and --oauth-provider exclude each other: use one of them")
    given = [f"--{name}" for name in login if name.startswith("oauth-")]
    for name in [*given, *(["--oauth-user"] if oauth_users else [])]:
        if not has_oauth:
            raise UsageError(f"{name} needs --oauth-provider, which is missing")
    has_login = bool(basic_auth) or has_oauth
    public = address not in LOOPBACK or any(host_of(origin) not in LOOPBACK for origin in origins)
    if allow_marks and public and not has_login:
        raise UsageError(
            "--allow-marks with a public --address or origin lets everyone write into the store: "
            "add --basic-auth or --oauth-provider"
        )
    if address not in LOOPBACK and not (has_login or insecure):
        raise UsageError(
            f"--address {address} lets everybody who can reach it read all runs, errors and "
            "sources: add --basic-auth or --oauth-provider, or accept it with --insecure"
        )
    if allow_marks and has_oauth and not oauth_users:
        raise UsageError(
            "--allow-marks with --oauth-provider lets every account of the provider write into the "
            "store: name the permitted accounts with --oauth-user"
        )


def _bind(serve_on: Callable[[int], Any], address: str, port: int) -> tuple[Any, int]:
    """Return a server, and its port: 0 is a free one, which another process can take first."""
    for attempt in range(1, PORT_ATTEMPTS + 1):
        chosen = _free_port(address, port)
        try:
            return serve_on(chosen), chosen
        except OSError as error:
            if port or attempt == PORT_ATTEMPTS:
                raise _port_error(address, port, error) from error
    raise AssertionError("not reached")


def _free_port(address: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise _port_error(address, port, error) from error
        return probe.getsockname()[1]


def _port_error(address: str, port: int, error: OSError) -> UsageError:
    text = error.strerror or str(error)
    return UsageError(f"--address {address} --port {port}: {text}: choose another")


#: Bokeh evaluates the callbacks of pages, which are strings, and loads modules that a page has as
#: text (blob:), so scripts of the page are permitted. Everything else comes from this server, and
#: no page of another site may contain a page of this one.
_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "frame-ancestors 'self'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Listen on all addresses of this machine.
_ALL_ADDRESSES = ("0.0.0.0", "::")
#: HTTP status: this server is not responsible for the requested host (RFC 9110, 15.5.20).
_MISDIRECTED = 421


class SecurityHeaders(OutputTransform):
    """Add the headers to an answer; for `Application.add_transform`."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._is_https = request.protocol == "https"

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Return status, headers and chunk of the answer."""
        protected = _Headers(self._is_https)
        for name, value in [*headers.get_all(), *_HEADERS.items()]:
            protected.add(name, value)
        return status_code, protected, chunk


class _Headers(HTTPHeaders):
    """Headers whose cookies are sent to this site only: Tornado adds cookies last."""

    def __init__(self, is_https: bool = False) -> None:
        super().__init__()
        self._flags = "; SameSite=Lax" + ("; Secure" if is_https else "")

    def add(self, name: str, value: str, **options: Any) -> None:
        if name.lower() == "set-cookie" and "samesite" not in value.lower():
            value += self._flags
        super().add(name, value, **options)


def host_of(origin: str) -> str:
    """Return the host of an origin or of a Host header, without the port.

    Examples
    --------
    >>> host_of("bench.example.org:5006"), host_of("[::1]:80"), host_of("localhost")
    ('bench.example.org', '::1', 'localhost')
    """
    is_bare = origin.count(":") > 1 and not origin.startswith("[")  # an IPv6 address without a port
    head, _, port = origin.rpartition(":")
    return (head if port.isdigit() and not is_bare else origin).strip("[]").lower()


def own_names(address: str) -> list[str]:
    """Return the valid host names and addresses of a server, in lower case."""
    names = {address, "localhost"}
    if address in _ALL_ADDRESSES:
        names = {"localhost", socket.gethostname(), socket.getfqdn()}
        for addresses in psutil.net_if_addrs().values():
            names |= {
                entry.address.partition("%")[0]
                for entry in addresses
                if entry.family in (socket.AF_INET, socket.AF_INET6)
            }
    return sorted(name.lower() for name in names if name)


def protect(application: Application, address: str, origins: Iterable[str]) -> None:
    """Make a Tornado application send security headers, and reject unknown Host headers.

    A foreign web page can resolve its host name to the address of this machine (DNS rebinding);
    requests of its scripts then look like requests of the dashboard's own pages, and Tornado
    accepts them without checking the allowed origins.
    """
    trusted = [*own_names(address), *map(host_of, origins)]
    application.add_transform(SecurityHeaders)
    find_handler = application.find_handler

    def find_handler_or_reject(request: HTTPServerRequest, **options: Any) -> Any:
        host = host_of(request.host)
        if any(fnmatch(host, name) for name in trusted):
            return find_handler(request, **options)
        return application.get_handler_delegate(
            request, ErrorHandler, {"status_code": _MISDIRECTED}
        )

    application.find_handler = find_handler_or_reject  # type: ignore[method-assign]
