"""Secrets are removed by key, by form and by known value."""

from __future__ import annotations

import json

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("cannot open https://bob:pw12@db/x", "pw12"),
        ("postgresql://u:p%40ss@host:5432/db failed", "p%40ss"),
        ("redis://:onlypass@cache:6379/0", "onlypass"),
        ("git+https://tok12345@github.com/x/y@main", "tok12345"),
        ("https://0123456789abcdef@o1.ingest.sentry.io/42", "0123456789abcdef"),
        ("GET https://host/data?token=q1w2&x=1", "q1w2"),
        ("https://acc.blob.core.windows.net/c?sv=2024&sig=Ab%2Bcd%3D", "Ab%2Bcd%3D"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature=deadbeef01&x=2", "deadbeef01"),
        ("AccountName=a;AccountKey=Zm9vYmFyMTI=;EndpointSuffix=x", "Zm9vYmFyMTI="),
        ("Endpoint=sb://x/;SharedAccessKey=c2VjcmV0;x", "c2VjcmV0"),
        ("Server=db;User=sa;Password=hunter2;", "hunter2"),
        ("Driver={x};Uid=me;Pwd=hunter22;", "hunter22"),
        ("run --token=abc123def", "abc123def"),
        ("run --api-key s3cr3tkey", "s3cr3tkey"),
        ("MY_TOKEN=abc123def was set", "abc123def"),
        ('{"access_token": "abc123def"}', "abc123def"),
        ("header Authorization: Bearer abcDEF123456", "abcDEF123456"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        ("github_pat_11ABCDEFG0abcdefghij_KLMNOP", "github_pat_11ABCDEFG0abcdefghij_KLMNOP"),
        ("glpat-abcdefghijklmnop1234", "glpat-abcdefghijklmnop1234"),
        ("xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"),
        ("key AKIAIOSFODNN7EXAMPLE is wrong", "AKIAIOSFODNN7EXAMPLE"),
        ("sk-proj-abcdefghij0123456789", "sk-proj-abcdefghij0123456789"),
        ("hf_abcdefghijklmnopqrstuv", "hf_abcdefghijklmnopqrstuv"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMiJ9.c2lnbmF0dXJl", "eyJzdWIiOiIxMiJ9"),
        ("https://hooks.slack.com/services/T0/B0/XyZ", "T0/B0/XyZ"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ],
)
def test_secrets_of_known_forms_are_removed(text, secret):
    clean = redact_text(f"before {text} after")

    assert secret in text
    assert secret not in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert redact_text(clean) == clean
    assert secret not in json.dumps(redact({"error": text}))


@pytest.mark.parametrize(
    "text",
    [
        "git+ssh://git@github.com/x/y",
        "tcp://127.0.0.1:8786",
        "https://example.org/a/b@c?x=1#token",
        "token = tokenize(array)",
        "    def tokenize(*args: object, ensure_deterministic: bool | None = None) -> str:",
        "KeyError: 'sum-aggregate-1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f'",
        "distributed.worker - WARNING - Unmanaged memory: 512 MiB -- Worker limit: 1.00 GiB",
        "s3://bucket/prefix/file.parquet",
        "monkey=banana keyboard=qwerty1234",
    ],
)
def test_other_texts_are_unchanged(text):
    assert redact_text(text) == text
    assert redact(text) == text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True), ("AWS_ACCESS_KEY_ID", True), ("SNOWFLAKE_PWD", True),
        ("GH_PAT", True), ("SENTRY_DSN", True), ("AZURE_STORAGE_KEY", True), ("APIKEY", True),
        ("token", True), ("auth", True), ("DASK_GATEWAY__AUTH", True), ("SLACK_WEBHOOK_URL", True),
        ("AZURE_STORAGE_CONNECTION_STRING", True), ("password-file", True),
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
