"""HTTP server with the part of GitHub's REST API that issues need, with the same validation."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MAX_CHARACTERS = 65_536
_ISSUE_FIELDS = {"title", "body", "labels", "state", "state_reason", "assignees", "milestone"}


class GitHubServer:
    """Issues of the repository ``dask/perf``; `requests` holds (method, path, body) as received."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.issues: dict[int, dict[str, Any]] = {}
        self.comments: dict[int, list[str]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.failing = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, respond, link = server.respond(
                    self.command, self.path, body, self.headers.get("Authorization", "")
                )
                data = json.dumps(respond).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                if link:
                    self.send_header("Link", link)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = _serve

            def log_message(self, *words: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def respond(self, method: str, path: str, body: Any, login: str) -> tuple[int, Any, str]:
        parts = urlsplit(path)
        self.requests.append((method, path, body))
        if login not in (f"token {self.token}", f"Bearer {self.token}"):
            return 401, {"message": "Bad credentials"}, ""
        if self.failing:
            self.failing -= 1
            return 500, {"message": "try again later"}, ""
        if method != "GET":
            reason = _refusal(body)
            if reason:
                return 422, {"message": f"Validation Failed: {reason}"}, ""
        if parts.path == "/repos/dask/perf/issues":
            return self._list(parts) if method == "GET" else (201, self._create(body), "")
        match = re.fullmatch(r"/repos/dask/perf/issues/(\d+)(/comments)?", parts.path)
        if not match or int(match[1]) not in self.issues:
            return 404, {"message": "Not Found"}, ""
        number = int(match[1])
        if match[2]:
            self.comments[number].append(body["body"])
            return 201, {"id": len(self.comments[number]), "body": body["body"]}, ""
        if method == "PATCH":
            self.issues[number].update({name: body[name] for name in body})
        return 200, self.issues[number], ""

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        number = 1 + len(self.issues)
        self.issues[number] = {
            "number": number,
            "title": body["title"],
            "body": body.get("body"),
            "state": "open",
            "labels": [{"name": name} for name in body.get("labels", [])],
            "url": f"{self.url}/repos/dask/perf/issues/{number}",
        }
        self.comments[number] = []
        return self.issues[number]

    def _list(self, parts: Any) -> tuple[int, Any, str]:
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        labels = set(filter(None, query.get("labels", "").split(",")))
        match = [
            issue
            for issue in sorted(self.issues.values(), key=lambda issue: -issue["number"])
            if query.get("state", "open") in ("all", issue["state"])
            and labels <= {label["name"] for label in issue["labels"]}
        ]
        size, page = min(int(query.get("per_page", 30)), 100), int(query.get("page", 1))
        link = ""
        if page * size < len(match):
            query = "&".join(f"{k}={v}" for k, v in {**query, "page": str(page + 1)}.items())
            link = f'<{self.url}{parts.path}?{query}>; rel="next"'
        return 200, match[(page - 1) * size : page * size], link


def _refusal(body: Any) -> str:
    if not isinstance(body, dict):
        return "no object"
    if set(body) - _ISSUE_FIELDS:
        return f"unknown fields {set(body) - _ISSUE_FIELDS}"
    if len(body.get("body") or "") > MAX_CHARACTERS:
        return "body is too long (maximum is 65536 characters)"
    if len(body.get("title") or "") > 256:
        return "title is too long (maximum is 256 characters)"
    if body.get("state") not in (None, "open", "closed"):
        return "state"
    if body.get("state_reason") not in (None, "completed", "not_planned", "reopened", "duplicate"):
        return "state_reason"
    return ""
