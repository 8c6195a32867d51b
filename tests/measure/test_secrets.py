"""Secrets are removed by key, by form and by known value."""

import base64
import html
import json
import runpy
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import numpy as np
import pytest
from helpers.planted_secrets import harmless_texts, planted_texts

from benchkit.measure.secrets import (
    REDACTED,
    is_secret_name,
    redact,
    redact_text,
    redaction,
    remember_secrets,
)


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(redaction, "_known", set())


@pytest.mark.parametrize("text", planted_texts("forms"))
def test_redact_text_removes_every_form_and_nothing_before_it(text):
    secret = planted_texts("forms")[text]

    clean = redact_text(f"before {text} after")

    assert secret in text
    assert secret not in clean
    assert secret[-6:] not in clean
    assert clean.startswith("before ")
    assert redact_text(clean) == clean
    assert secret not in json.dumps(redact({"error": text, "entries": [text]}))


@pytest.mark.parametrize("text", harmless_texts())
def test_redact_text_keeps_harmless_text(text):
    assert redact_text(text) == text
    assert redact({"line": text}) == {"line": text}


def test_redact_text_is_linear_for_hostile_texts():
    seeds = (
        "://a:", "eyJ.", "token=", "'token': '", "Pwd=", "?token=", "-----BEGIN PRIVATE KEY-----",
        "a1B", "_", "\\\\'", "login a password ", "curl -u ", "xoxb-1-", "https://a/hooks/", "a@b:",
        "authorization: ", "git+https://a:", "{a}", "Basic a", ";key", "/t/", "a.", "-",
        "123456789:",
    )  # fmt: skip
    texts = [seed * (20_000 // len(seed)) + "\n!" for seed in seeds]

    begin = time.process_time()
    for text in texts:
        redact_text(text)

    assert time.process_time() - begin < 30  # takes 3 s; quadratic rules took minutes


def test_token_rules_are_those_of_detect_secrets():
    script = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "token-rules"))

    stored = json.loads(script["TARGET"].read_text(encoding="utf-8"))

    assert stored == script["content"]()
    assert len(stored["rules"]) >= 20


@pytest.mark.parametrize(
    "spell",
    [
        json.dumps, repr, html.escape, quote, quote_plus,
        lambda secret: json.dumps(json.dumps(secret)),
        lambda secret: repr(repr(secret)),
        lambda secret: repr({"error": repr(secret)}),
        lambda secret: base64.b64encode(f"bob:{secret}".encode()).decode(),
        lambda secret: base64.urlsafe_b64encode(f"b:{secret}".encode()).decode(),
        lambda secret: base64.b64encode(secret.encode()).decode(),
    ],
)  # fmt: skip
def test_known_value_is_removed_in_every_spelling(spell):
    secret = """it's a "quoted" pass\\word & more/@%~ü"""
    remember_secrets({"nested": [{"password": secret}]})

    clean = redact_text(f"before {spell(secret)} after")

    assert not {word for word in ("quoted", "cXVvdGVk", "more", "bW9yZ") if word in clean}
    assert clean.startswith("before ")
    assert clean.endswith(" after")


def test_logins_in_addresses_of_variables_and_settings_are_known_values(monkeypatch):
    monkeypatch.setenv("SERVICE_ADDRESS", "https://bob:quietword@host")
    monkeypatch.setenv("INDEX", "https://otherword@index.example/simple")
    remember_secrets({"storage_options": {"key": "keywordone", "secret": "keywordtwo"}})
    remember_secrets(["dask @ git+https://oauth2:thirdword@git.example/x@main"])

    clean = redact_text("quietword otherword keywordone keywordtwo thirdword")

    assert clean == "*** *** *** *** ***"


def test_redact_removes_headers_as_pairs_and_keeps_keys_that_are_no_text():
    value = {"headers": [["Authorization", "abcdefgh"], ("X-Api-Key", "x"), ["Host", "h"]], 3: "a"}

    assert redact(value) == {
        "headers": [["Authorization", REDACTED], ["X-Api-Key", REDACTED], ["Host", "h"]], 3: "a",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True), ("AWS_ACCESS_KEY_ID", True), ("SNOWFLAKE_PWD", True),
        ("GH_PAT", True), ("SENTRY_DSN", True), ("AZURE_STORAGE_KEY", True), ("APIKEY", True),
        ("token", True), ("auth", True), ("DASK_GATEWAY__AUTH", True), ("SLACK_WEBHOOK_URL", True),
        ("AZURE_STORAGE_CONNECTION_STRING", True), ("password-file", True),
        ("HF_TOKENS", True), ("TOKEN2", True), ("FERNET_KEY", True), ("SSH_KEY", True),
        ("DEPLOY_KEY", True), ("S3_KEY", True), ("pass", True), ("tokens", True), ("DB_PW", True),
        ("clientSecret", True), ("HEROKU_API_KEY_V2", True), ("identitytoken", True),
        ("registry.auth", True), ("Cookie", True), ("PRIVATE-TOKEN", True), ("1P_SECRET", True),
        ("hot_key", False), ("primary_key", False), ("dask_key_name", False), ("task.key", False),
        ("keys", False), ("n_keys", False), ("max_tokens", False), ("path", False),
        ("passes", False), ("compass", False), ("secretstorage", False), ("private_ip", False),
        ("PWD", False), ("OLDPWD", False), ("author", False), ("sort_key", False),
        ("PATH", False), ("tokenize", False), ("n_tokens", False), ("worker-ttl", False),
        ("TOKENIZERS_PARALLELISM", False), ("key", False), ("memory_limit", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, is_secret):
    assert is_secret_name(name) == is_secret


def test_values_under_names_of_secrets_are_removed_everywhere(monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "correct horse")
    remember_secrets({"env": {"API_KEY": 'bat"tery'}, "credentials": {"user": "staple"}})

    assert redact_text("login correct horse failed") == "login *** failed"
    assert redact({"error": 'wrong: bat"tery'}) == {"error": "wrong: ***"}
    assert "tery" not in redact_text(json.dumps({"x": 'bat"tery'}))
    assert redact_text("user staple") == "user ***"


def test_redact_keeps_structure_types_and_order():
    value = {
        "b": 1, "a": (1, 2.5, None, True), "token": "x1", "n_tokens": 3, "password": "",
        "packages": {"tokenizers": "0.15", "secretstorage": "3.3"}, "blob": b"\0\1",
        "pins": {"asttokens": "3.0.0", "secretstorage": "3.3.3", "pytest-secrets": "1.0rc1"},
        "number": np.int64(3), "argv": ["benchkit", "--token", "s3cr3t", "run"],
        "auth": {"type": "kerberos", "password": "k"},
    }  # fmt: skip

    clean = redact(value)

    assert list(clean) == list(value)
    assert clean == {
        **value, "a": [1, 2.5, None, True], "token": REDACTED,
        "argv": ["benchkit", "--token", REDACTED, "run"],
        "auth": {"type": "kerberos", "password": REDACTED},
    }  # fmt: skip
    json.dumps({**clean, "blob": ""})
