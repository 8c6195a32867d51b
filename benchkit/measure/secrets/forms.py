r"""Names of secrets, and the forms in which they stand in texts.

Forms of tokens of single services come from detect-secrets (`token_rules.json`, written by
`.ci/token-rules`). The forms here are of no single service: assignments, addresses, headers,
connection strings, and words that look random. Python's `re` has no limit of time: each
repetition has an upper bound, and begins where a word or an address begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

#: Words in a name of which the value is a secret.
_SECRET_WORDS = frozenset(
    "auth authorization bearer cookie cookies cred creds credential credentials dsn pass passcode"
    " passphrase passwd password passwords pat private pw pwd sas secret secrets sig signature"
    " token tokens webhook webhooks".split()
)
#: The same inside of longer words: `identitytoken`, `APIKEY`, `dbpassword`, `webhookurl`.
_SECRET_PART = re.compile(
    r"passw|passphrase|secret|credential|webhook|private"
    r"|(?:token|pwd|cookie|signature|(?:api|access|account|auth|client|shared|storage)key)s?$"
)
#: Words before `key` that make it the key of data, not of a lock.
_HARMLESS_KEYS = frozenset(
    "by cache cold column columns composite dask data dict filter foreign graph group grouping"
    " hash hot in index join left lookup main map merge metric n name node num number object on"
    " one order param parameter partition primary public right row run same sort sorting task"
    " this unique value with your".split()
)
#: Names that contain a word of a secret, but whose values are none.
_HARMLESS = re.compile(
    r"tokeni[sz]|^(?:n|num|max|min|total|input|output|count)-tokens?\b|tokens?-(?:ur[il]|count)$"
    r"|^secretstorage$|private-(?:to|ips?|networks?)\b|pass-through|^(?:old)?pwd$"
    r"|(?:auth|pass|sig|pat)-(?:by|for|if|in|of|on|to|with)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether the value of an entry or variable with this name is a secret.

    Examples
    --------
    >>> is_secret_name("AZURE_STORAGE_KEY"), is_secret_name("sort_key")
    (True, False)
    """
    parts = re.split(r"[^a-z0-9]+", _CAMEL.sub("-", name).lower())
    words = [word for word in (part.rstrip("0123456789") for part in parts) if word]
    if words[-1:] == ["v"]:  # API_KEY_V2
        words.pop()
    joined = "-".join(words)
    if not words or _HARMLESS.search(joined):
        return False
    if "connection-string" in joined or any(
        word in _SECRET_WORDS or _SECRET_PART.search(word) for word in words
    ):
        return True
    before, last = words[-2:] if len(words) > 1 else ("", words[-1])
    if before == "key" and last in ("id", "base", "value", "data"):  # AWS_ACCESS_KEY_ID
        return len(words) > 2 and words[-3] not in _HARMLESS_KEYS
    is_attribute = re.search(r"\.keys?$", name)  # task.key
    is_key = last in ("key", "keys") and not is_attribute
    return bool(before) and is_key and before not in _HARMLESS_KEYS


#: Longest name of an assignment, with two hyphens.
_MAX_NAME = 83
#: What stands before a word in such a name.
_NAME_BEFORE = re.compile(rf"[\w.-]{{0,{_MAX_NAME}}}\Z")
#: A value ends with a space, a quotation mark or a bracket.
_PLAIN = r"[^\s'\"<>&;,\\)\]}]"
_QUOTE = r"\\{0,31}['\"]"
#: Name, sign and value of an assignment, an entry of JSON or YAML, an option or a header. The name
#: decides (`is_secret_name`). Quotation marks may be escaped, as in logs of Dask.
_ASSIGNMENT = re.compile(
    rf"(?<![\w.$-])(?P<name>-{{0,2}}\w[\w.-]{{0,{_MAX_NAME - 3}}})(?P<end>{_QUOTE}\]?|\]?)"
    r"(?P<sign>[ \t]{0,3}(?:=>|:=|[=:])[ \t]{0,3})"
    r"(?:[bfru]{0,2}(?P<quote>\\{0,31}(?:\"\"\"|\"|'))(?P<quoted>(?:(?!(?P=quote))[^\n]){1,2000})"
    rf"|(?P<plain>{_PLAIN}{{1,2000}}))"
)
#: An option and its value, apart: --token x.
_OPTION = re.compile(
    rf"(?<!\S)-{{1,2}}(?P<name>[A-Za-z][\w-]{{1,60}})[ \t]{{1,3}}(?!-)({_PLAIN}{{4,500}})"
)
#: Words that follow an option in a sentence: "--token needs a file". Any other word in lower case
#: may be a password. Shorter words are no values (`_OPTION`).
_SENTENCE_WORDS = frozenset(
    "allows also applies cannot contains does exclude excludes expected expects from gives have"
    " instead into lets makes means missing must names needs only reads replaces required requires"
    " sets should takes than that twice used uses were when which will with without writes".split()
)
#: Words in lower case of which a text with the form has one -> the form; its group is the secret.
_FORMS = [
    # Logins in addresses. Passwords may contain @ and /, so the last @ ends them; in git+https,
    # the last one may begin a branch.
    (
        ("git+http",),
        r"git\+https?://([^\s/@'\"<>\\]{0,300}?:[^\s'\"<>\\]{1,500}?|[^\s/@:'\"<>\\]{4,500})@"
        r"(?=(?:[\w-]{1,63}\.){1,10}[a-z]{2,20}[:/]|localhost|\d{1,3}(?:\.\d{1,3}){3})",
    ),
    (
        ("://",),
        r"(?<!git\+https)(?<!git\+http)://(?!git@)([^\s/@'\"<>\\:]{0,300}:"
        r"(?!\d{1,5}(?:[/?#,;)\]\s]|$))(?:[^\s'\"<>\\]|\\(?!['\"\\nrt])){1,500})@",
    ),
    (("://",), r"(?i)https?://([^\s/@'\"\\<>?#]{1,500})@"),
    (
        ("@",),
        r"(?<![\w.:/@-])[\w.-]{1,60}:([^\s@:/'\"<>\\]{4,200})@[\w.-]{1,200}:\d{2,5}\b",
    ),
    # Parts of queries: tokens and signatures (SAS of Azure, presigned addresses of S3).
    (
        ("?", "&", ";"),
        r"(?i)[?&;](?:[a-z_-]{0,30}token|sig|signature|[a-z_-]{0,20}key|auth|pass(?:word)?|pwd"
        r"|[a-z_-]{0,20}secret|code|sv-sig"
        rf"|x-(?:amz|goog)-(?:signature|credential|security-token))=({_PLAIN}{{1,4000}})",
    ),
    # Parts of paths: channels of conda, Cloudsmith, webhooks of chats, bots of Telegram.
    (
        ("/t/",),
        r"://[^\s/'\"]{1,200}/(?:[\w.-]{1,60}/){0,3}?t/([\w.~%-]{4,300})"
        r"(?=[/\s'\"<>\\,;)\]}]|$)",
    ),
    (
        ("cloudsmith.",),
        r"://[\w.-]{0,60}cloudsmith\.(?:io|com)/(?!public/|basic/)([\w-]{6,200})(?=/)",
    ),
    (
        ("hook",),
        r"(?i)https?://[^\s/'\"]{1,200}/(?:[\w.-]{1,60}/){0,4}?(?:web-?hooks?b?2?|hooks)/"
        r"([^\s'\"<>\\]{8,1000})",
    ),
    (("hooks.slack",), r"://hooks\.slack\.com/[a-z]{1,20}/([^\s'\"<>\\]{3,1000})"),
    (("api.telegram",), r"://api\.telegram\.org/bot([\w:-]{8,100})"),
    # Connection strings.
    (
        ("accesskey=", "accountkey=", "sharedkey=", "signature=", "password=", "pwd="),
        r"\b(?:(?:Account|Shared(?:Access)?|Access)Key|SharedAccessSignature|Password|Pwd)="
        rf"({_PLAIN}{{1,4000}})",
    ),
    # Files with logins: netrc, curl.
    (
        ("login",),
        r"\blogin\s{1,5}\S{1,200}\s{1,5}(?:account\s{1,5}\S{1,200}\s{1,5})?"
        r"password\s{1,5}(\S{1,500})",
    ),
    (
        ("curl",),
        r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?['\"]?([^\s:'\"]{0,200}:[^\s'\"]{1,500})",
    ),
    # Headers: a pair of texts, or a scheme and a value, or cookies.
    (
        ("authorization", "cookie", "auth-token", "api-key"),
        r"(?i)(?<![\w-])(?:(?:proxy-|x-[a-z-]{0,20})?(?:authorization|auth-token|api-key)"
        rf"|(?:set-)?cookie)(?:{_QUOTE}[ \t]*[:,=][ \t]*[bru]?{_QUOTE}([^'\"\\\n]{{3,4000}})"
        r"|[ \t]*:[ \t]*(?![A-Za-z]{2,20} \$)((?:[A-Za-z-]{2,20} )?[^\s'\";\\,$]{3,4000}"
        r"(?:;[ \t]*[^\s'\";\\]{1,4000}){0,50}))",
    ),
    (
        ("bearer", "basic", "negotiate", "apikey"),
        r"\b(?:Bearer|Basic|Negotiate|ApiKey)\s{1,3}(?=[A-Za-z][a-z.~-]{0,4000}[A-Z0-9+/=_]|[0-9])"
        r"([A-Za-z0-9+/=._~-]{8,4000})",
    ),
    # Tokens of services that detect-secrets does not have, or has in an old form.
    (
        ("github_pat_", "sk-", "k_test_", "k_live_", "hf_", "aiza", "ya29.", "npm_", "dop_v1_"),
        r"(?<![A-Za-z0-9])(github_pat_[A-Za-z0-9_]{20,255}|sk-[A-Za-z0-9_-]{20,300}"
        r"|[rs]k_(?:test|live)_[A-Za-z0-9]{10,200}|hf_[A-Za-z0-9]{20,100}|AIza[\w-]{30,60}"
        r"|ya29\.[\w.-]{20,1000}|npm_[A-Za-z0-9]{30,100}|dop_v1_[0-9a-f]{40,100})",
    ),
    (
        ("private key",),
        r"(?s)-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?! ?\*\*\*)"
        r"(.{1,20000}?)(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY|\Z)",
    ),
]
_RULES = [
    *_FORMS,
    *(
        (tuple(rule["words"]), f"({rule['pattern']})")
        for rule in json.loads(
            Path(__file__).with_name("token_rules.json").read_text(encoding="utf-8")
        )["rules"]
    ),
]
#: Compiles a form when a text first has one of its words: all take as long as importing Click.
_compiled = lru_cache(maxsize=None)(re.compile)
#: Words of which each name of a secret contains one.
_NAME_WORDS = (
    "auth", "bearer", "cookie", "cred", "dsn", "pass", "pat", "private", "pw", "sas", "secret",
    "sig", "token", "webhook", "key", "connection",
)  # fmt: skip
#: Values in program text and logs that stand for no secret.
_HARMLESS_VALUE = re.compile(
    r"(?:none|null|true|false|nan|str|bytes|int|bool|optional|object|any|self|cls|default|basic"
    r"|kerberos|\*{3,}|\(not|\.{2,}|x{3,}|[\d._]{1,6}|v?\d+(?:\.\d+){1,4}\w{0,8}|\$\{?\w{1,60}\}?"
    r"|[%{<]\W?\w{0,60}[>}s]?)",
    re.I,
)
#: A field of an f-string or a template.
_FIELD = re.compile(r"\{[\w.]{0,40}\}")
_SIGNATURE = re.compile(r"[\w+/=%.-]{12,4000}")
_EXPRESSION = re.compile(r"[A-Za-z_][\w.]{0,200}(?:[(\[][^\s]{0,200})?")
#: Words without a form, which may be random; longer ones are data.
_RANDOM = re.compile(r"(?<![\w+/%-])(?=[\w-]{0,199}[0-9])[A-Za-z0-9_-]{20,200}(?![\w+/-])")
#: Name of a service and a hexadecimal number; a hyphen stands there in keys of Dask's tasks.
_NUMBERED = re.compile(
    r"(?<![\w-])(?!sha|md5|hash|commit|rev|git|run|id|key|blake|crc|uuid|etag|tmp|cache|build)"
    r"[a-z]{2,12}(?:_[a-z0-9]{1,8})?_[0-9a-f]{32,64}(?![\w-])"
)
_HASH = re.compile(r"[0-9a-f]{4,200}|[0-9A-F]{4,200}")
_DIGITS, _HEXADECIMAL = re.compile(r"[0-9]{1,200}"), re.compile(r"[0-9a-fA-F]")
_CHANGE = re.compile(r"[0-9](?=[A-Za-z])|[a-z](?=[0-9A-Z])|[A-Z](?=[0-9a-z])")
#: What stands before data in base64, and before digests.
_BEFORE_DATA = re.compile(
    r"(?:base64,|\"data\":\s?\"|ndarray__\":\s?\"|(?:sha|md|blake)\w{1,4}[-:=])$"
)


def find_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each secret that a text shows by its form, in no order."""
    lower = text.lower()
    for words, form in _RULES:
        if any(word in lower for word in words):
            for found in _compiled(form).finditer(text):
                yield found.span(found.lastindex or 0)
    yield from _named(text)
    for found in _NUMBERED.finditer(text):
        yield found.span()
    for found in _RANDOM.finditer(text):
        begin = found.start()
        is_data = _BEFORE_DATA.search(text, max(0, begin - 16), begin)
        if not is_data and _looks_random(found[0]):
            yield found.span()


def _named(text: str) -> Iterator[tuple[int, int]]:
    """Yield the values of assignments and options whose names are those of secrets."""
    begins = _begins_of_names(text)
    if not begins:
        return
    position = 0
    for begin in begins:
        # The value may itself be an assignment: env=TOKEN=x.
        found = _ASSIGNMENT.match(text, begin) if begin >= position else None
        if found is None or not is_secret_name(found["name"]):
            continue
        name, kind = found["name"], "quoted" if found["quoted"] else "plain"
        if _is_value(found[kind], name, found["sign"], is_quoted=kind == "quoted"):
            position = found.end()
            yield found.span(kind)
    for found in _OPTION.finditer(text):
        name, value = found["name"], found[2]
        is_kind = "webhook" in name and "/" not in value  # --webhook slack
        is_word = value.rstrip(".:") in _SENTENCE_WORDS
        if is_secret_name(name) and not is_kind and not is_word:
            yield found.span(2)


def _begins_of_names(text: str) -> list[int]:
    """Return where the words begin that contain a word of `_NAME_WORDS`, ascending.

    To search all assignments takes five times as long in a script of a megabyte.
    """
    lower = text.lower()
    if len(lower) != len(text):  # of İ, lower has two characters
        lower = "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
    begins = set()
    for word in _NAME_WORDS:
        place = lower.find(word)
        while place >= 0:
            before = _NAME_BEFORE.search(text, max(0, place - _MAX_NAME), place)
            begins.add(before.start() if before else place)
            place = lower.find(word, place + 1)
    return sorted(begins)


def _is_value(value: str, name: str, sign: str, *, is_quoted: bool) -> bool:
    """Return whether what follows the name of a secret is its value, not a piece of a program."""
    has_digit = any(map(str.isdigit, value))
    if len(value) < 3 or _HARMLESS_VALUE.fullmatch(value) or _FIELD.search(value):
        return False
    if "sig" in name.lower() and not _SIGNATURE.fullmatch(value):  # signature="(i,j)->()"
        return False
    is_program = sign.strip() == "=" and sign != "="
    if is_quoted:
        # PLAN_KEY = "plan" in a program
        return has_digit or not is_program or not name.lower().endswith(("key", "keys"))
    if (name.isupper() or name.startswith("--")) and not is_program:  # a variable, an option
        return (sign == "=" or has_digit) and not value.endswith("(")
    if _EXPRESSION.fullmatch(value) or value[0] in "([{":
        # password=password, auth=get(...), token: hunter12
        is_word = value.replace("_", "").isalnum()
        return has_digit and is_word and len(value) >= (6 if ":" in sign or value.isalnum() else 12)
    return has_digit and len(value) >= 6


def _looks_random(word: str) -> bool:
    """Return whether letters and digits alternate as in a token; false for hashes and UUIDs."""
    word = "".join(part for part in re.split("[-_]", word) if not _HASH.fullmatch(part))
    if len(word) < 20 or len(_DIGITS.findall(word)) < 2:  # RoundUpToMultipleOf64
        return False
    is_mixed = not (word.islower() or word.isupper())
    if not is_mixed and len(_HEXADECIMAL.sub("", word)) < 3:
        return False
    return len(_CHANGE.findall(word)) >= (0.42 if is_mixed else 0.3) * len(word)
