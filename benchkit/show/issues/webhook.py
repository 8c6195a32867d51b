"""Post the news of a night to a webhook: as JSON, or as a message for Slack."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchkit.errors import BenchkitError, UsageError
from benchkit.formatting import counted, format_change
from benchkit.measure.secrets import remember_secrets
from benchkit.text import chat_text
from benchkit.values import json_safe

#: Variables with the URL, which is a secret, or with the name of a file that contains it.
URL, URL_FILE = "BENCHKIT_WEBHOOK", "BENCHKIT_WEBHOOK_FILE"
#: Largest message of a chat in characters: services fold longer ones, or refuse 2,000.
_MAX_CHARACTERS = 1800
#: Requests until one is accepted, if the server is overloaded.
_TRIES = 3
_OVERLOADED = {429, 502, 503, 504}


class WebhookError(BenchkitError):
    """Raised when a webhook does not accept a message."""


def webhook_for(form: str) -> Webhook | None:
    """Return the webhook at the URL in ``$BENCHKIT_WEBHOOK``, or in ``$BENCHKIT_WEBHOOK_FILE``."""
    if form == "none":
        return None
    url, source = os.environ.get(URL, ""), f"${URL}"
    if path := os.environ.get(URL_FILE, ""):
        source = f"${URL_FILE}"
        try:
            url = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise UsageError(f"--webhook {form}: {source}: cannot be read: {reason}") from None
    url = url.strip()
    if not url:
        raise UsageError(f"--webhook {form}: set ${URL} to its URL, or ${URL_FILE} to a file of it")
    if not _is_http(url):
        raise UsageError(f"--webhook {form}: {source} must be one URL that begins with https://")
    return Webhook(url, form)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (raises an error for a port that is no number)
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


class Webhook:
    """A URL that accepts messages by POST."""

    def __init__(self, url: str, form: str, *, timeout_s: float = 10.0) -> None:
        remember_secrets({"webhook": url})
        self._url, self._form, self._timeout_s = url, form, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects)

    def post(
        self,
        sentence: str,
        changes: Sequence[Mapping[str, Any]],
        failures: Sequence[str],
        *,
        site: str | None = None,
    ) -> str:
        """Post the news of a night; if there are none, nothing is posted."""
        if not changes and not failures:
            return "nothing to report"
        message: dict[str, Any]
        if self._form == "slack":
            message = {"text": _text(sentence, changes, failures, site)}
        else:
            message = {
                "title": sentence,
                "site": site,
                "changes": list(changes),
                "failures": list(failures),
            }
        self._send(json.dumps(json_safe(message), default=str).encode())
        return f"posted {counted(len(changes), 'change')}, {counted(len(failures), 'failure')}"

    def _send(self, body: bytes) -> None:
        """Send a message; an error names neither the URL nor what the server answered."""
        headers = {"Content-Type": "application/json", "User-Agent": "benchkit"}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self._opener.open(request, timeout=self._timeout_s):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _OVERLOADED or not left:
                    raise WebhookError(f"status {error.code}") from None
            except (OSError, HTTPException, ValueError) as error:
                reason = getattr(error, "reason", error)
                kind = type(reason if isinstance(reason, Exception) else error).__name__
                raise WebhookError(f"no answer: {kind}") from None
            time.sleep(1)

    def __repr__(self) -> str:
        return f"<benchkit.Webhook {self._form}>"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Report a redirect as an error: urllib would repeat the request without its body."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def _text(
    sentence: str, changes: Sequence[Mapping[str, Any]], failures: Sequence[str], site: str | None
) -> str:
    """Return a message for a chat, a line for each change and failure."""
    lines = [_line(change, site) for change in changes]
    lines += [f"• failed: {chat_text(failure)}" for failure in failures]
    more = f"<{chat_text(site)}|all nights>" if site else ""
    text = chat_text(sentence)
    for number, line in enumerate(lines):
        if len(text) + len(line) + len(more) > _MAX_CHARACTERS:
            text += f"\n… and {len(lines) - number} more"
            break
        text += f"\n{line}"
    return f"{text}\n{more}" if more else text


def _line(change: Mapping[str, Any], site: str | None) -> str:
    """Return the line of a change, with a link to its page."""
    what = chat_text(f"{change.get('workload')}: {change.get('metric')}")
    if site and change.get("regression"):
        name = chat_text(str(change["regression"]))
        what = f"<{chat_text(site).rstrip('/')}/regressions/{name}.html|{what}>"
    where = chat_text(str(change.get("environment") or ""))
    size = format_change(change.get("ratio"))
    return f"• {change['kind'].replace('_', ' ')}: {what} {size} ({where})"
