"""Remove secrets from everything that is written: by key, by form, and by known value.

By key: the value of an entry or environment variable whose name is that of a secret. By form:
logins in addresses, signatures, tokens of known services, connection strings. By known value: what
stands in variables, in Dask's configuration and in options of a cluster under such a name is
removed from every text, such as the message of an error.
"""

from benchkit.measure.secrets.forms import is_secret_name
from benchkit.measure.secrets.redaction import (
    REDACTED,
    has_secret,
    redact,
    redact_file,
    redact_text,
    remember_secrets,
)

__all__ = [
    "REDACTED",
    "has_secret",
    "is_secret_name",
    "redact",
    "redact_file",
    "redact_text",
    "remember_secrets",
]
