"""HTTP server with the part of GitHub's REST API that issues need, with the same validation."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_CHARACTERS = 65_536
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
                status, answer, links = server.answer(
                    self.command, self.path, body, self.headers.get("Authorization", "")
                )
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                if links:
                    self.send_header("Link", links)
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

    def answer(self, method: str, path: str, body: Any, login: str) -> tuple[int, Any, str]:
        parts = urlsplit(path)
        self.requests.append((method, path, body))
        if login not in (f"token {self.token}", f"Bearer {self.token}"):
            return 401, {"message": "Bad credentials"}, ""
        if self.failing:
            self.failing -= 1
            return 500, {"message": "try again later"}, ""
        if method != "GET":
            refused = _refusal(body)
            if refused:
                return 422, {"message": f"Validation Failed: {refused}"}, ""
        if parts.path == "/repos/dask/perf/issues":
            return self._list(parts) if method == "GET" else (201, self._create(body), "")
        found = re.fullmatch(r"/repos/dask/perf/issues/(\d+)(/comments)?", parts.path)
        if not found or int(found[1]) not in self.issues:
            return 404, {"message": "Not Found"}, ""
        number = int(found[1])
        if found[2]:
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
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        wanted = set(filter(None, asked.get("labels", "").split(",")))
        found = [
            issue
            for issue in sorted(self.issues.values(), key=lambda one: -one["number"])
            if asked.get("state", "open") in ("all", issue["state"])
            and wanted <= {label["name"] for label in issue["labels"]}
        ]
        size, page = min(int(asked.get("per_page", 30)), 100), int(asked.get("page", 1))
        links = ""
        if page * size < len(found):
            query = "&".join(f"{k}={v}" for k, v in {**asked, "page": str(page + 1)}.items())
            links = f'<{self.url}{parts.path}?{query}>; rel="next"'
        return 200, found[(page - 1) * size : page * size], links


def _refusal(body: Any) -> str:
    if not isinstance(body, dict):
        return "no object"
    if set(body) - _ISSUE_FIELDS:
        return f"unknown fields {set(body) - _ISSUE_FIELDS}"
    if len(body.get("body") or "") > MOST_CHARACTERS:
        return "body is too long (maximum is 65536 characters)"
    if len(body.get("title") or "") > 256:
        return "title is too long (maximum is 256 characters)"
    if body.get("state") not in (None, "open", "closed"):
        return "state"
    if body.get("state_reason") not in (None, "completed", "not_planned", "reopened", "duplicate"):
        return "state_reason"
    return ""
