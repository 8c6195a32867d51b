"""Names of secrets, and forms in which they stand in texts."""

from __future__ import annotations

import re

__all__ = ["FORMS", "is_secret_name"]

_NAME = re.compile(
    r"token($|[-.])|passw|pwd|passphrase|secret|credential|private|cookie|webhook|signature"
    r"|api-?key|access-?key|account-?key|shared-?key|storage-?key|signing-?key|encryption-?key"
    r"|connection-?string|(^|[-.])(auth|pat|dsn|sas|bearer)($|[-.])|-auth$|^auth-"
)
#: Names that contain a word of a secret, but whose values are none.
_HARMLESS = re.compile(
    r"(^|[-.])(tokenize|token-?(url|uri)|n-?tokens|private-(to|ip|network)s?)|^(old)?pwd$"
)
_SECRET_OPTION = r"[\w-]*(?:token|passw(?:or)?d|pwd|secret|api[-_]?key|access[-_]?key|credential)"
_END = r"[^\s'\"<>&;,\\)\]}]"
#: Patterns of secrets inside texts, and what replaces them.
FORMS = [
    # Logins in addresses: user:password@, and token@ in http addresses.
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]*://)(?!git@)[^\s/@'\"\\<>]*:[^\s/@'\"\\<>]*@", re.I),
        r"\1***@",
    ),
    (re.compile(r"(\bhttps?://)[^\s/@'\"\\<>?#]+@", re.I), r"\1***@"),
    # Parts of queries: tokens and signatures (SAS of Azure, presigned addresses of S3).
    (
        re.compile(
            r"([?&;](?:[a-z_-]*token|sig|signature|api[-_]?key|key|password|secret|code|sv-sig"
            rf"|x-(?:amz|goog)-(?:signature|credential|security-token))=){_END}+",
            re.I,
        ),
        r"\1***",
    ),
    # Connection strings.
    (
        re.compile(
            r"\b((?:Account|Shared(?:Access)?|Access)Key|SharedAccessSignature|Password|Pwd)="
            rf"{_END}+",
            re.I,
        ),
        r"\1=***",
    ),
    # Options and assignments: --token=..., MY_TOKEN=..., password: ...
    (
        re.compile(
            rf"((?:--|\b){_SECRET_OPTION}['\"]?\s*[=:]\s*['\"]?)(?={_END}*\d){_END}{{6,}}", re.I
        ),
        r"\1***",
    ),
    (re.compile(rf"(--{_SECRET_OPTION}\s+){_END}{{4,}}", re.I), r"\1***"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{8,}"), r"\1 ***"),
    # Tokens of services, which have known forms.
    (
        re.compile(
            r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[\w-]{16,}"
            r"|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA|ABIA)[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}"
            r"|pypi-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
            r"|npm_[A-Za-z0-9]{30,}|dop_v1_[0-9a-f]{40,}"
            r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
        ),
        "***",
    ),
    (re.compile(r"(hooks\.slack\.com/(?:services|workflows)/)[\w/-]+"), r"\1***"),
    (
        re.compile(
            r"-----BEGIN ([A-Z ]*)PRIVATE KEY-----(?! \*\*\*)"
            r".*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
            re.S,
        ),
        r"-----BEGIN \1PRIVATE KEY----- ***",
    ),
]


def is_secret_name(name: str) -> bool:
    """Return whether the value of an entry or variable with this name is a secret.

    Parameters
    ----------
    name : str
        Name of a variable, key of a configuration or option of a cluster.

    Returns
    -------
    bool
        Whether it contains a word such as ``token``, or ends like ``_PWD``.

    Examples
    --------
    >>> is_secret_name("AZURE_STORAGE_KEY"), is_secret_name("sort_key")
    (True, False)
    """
    key = name.lower().replace("_", "-")
    return bool(_NAME.search(key)) and not _HARMLESS.search(key)
