"""Secrets in all forms, made when a test runs: no file of the repository has a token's form."""

import base64
import random
import string
import uuid
from hashlib import md5, sha1, sha256

_LETTERS = string.ascii_letters + string.digits
_LOWER = string.ascii_lowercase + string.digits


class _Maker:
    """Random words that are the same in each process."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def word(self, n: int, letters: str = _LETTERS) -> str:
        return "".join(self.random.choices(letters, k=n))

    def plain(self, n: int = 12) -> str:
        """Return a word without digits."""
        return self.word(n, string.ascii_lowercase)


def planted_texts(seed: str = "") -> dict[str, str]:
    """Return texts that each hold a secret by its form -> the secret."""
    m = _Maker(f"texts {seed}")
    jwt = f"eyJ{m.word(30)}.eyJ{m.word(40)}"
    pairs = [
        # Addresses.
        ("cannot open https://bob:{}@db.example/x", m.word(9)),
        ("postgresql://u:{}@host:5432/db failed", f"{m.word(4)}%40{m.word(4)}"),
        ("postgres://bob:{}@host/db", f"{m.word(4)}@{m.word(5)}"),
        ("mysql://bob:{}@host:3306/db", f"{m.word(4)}/{m.word(5)}"),
        ("https://me:{}@proxy.example:3128", f"{m.plain(4)}@{m.plain(4)}/{m.plain(4)}"),
        ("redis://:{}@cache:6379/0", m.plain()),
        ("git+https://{}@github.com/x/y@main", m.plain(10)),
        ("git+https://oauth2:{}@gitlab.example/x/y.git@v1", m.plain(10)),
        ("https://{}@o1.ingest.sentry.io/42", m.word(32, "0123456789abcdef")),
        ("jdbc:postgresql://host/db?user=fred&password={}&ssl=true", m.plain()),
        ("proxy bob:{}@proxy.example:3128 refused", m.plain(8)),
        ("https://u:{}@pypi.example/simple", m.plain()),
        ("channel https://conda.anaconda.org/t/{}/team", f"xy-{m.word(8)}-{m.word(12)}"),
        ("https://dl.cloudsmith.io/{}/org/repo/conda/", m.word(16)),
        ("https://discord.com/api/webhooks/12345/{}", f"{m.word(30)}_{m.word(30)}"),
        ("https://acme.webhook.office.com/webhookb2/{}",
        f"{m.word(8)}@{m.word(8)}/IncomingWebhook/{m.word(9)}"),
        ("https://hooks.slack.com/services/{}", f"T{m.word(8)}/B{m.word(8)}/{m.word(24)}"),
        ("https://chat.example/hooks/{}", m.word(26, _LOWER)),
        ("https://api.telegram.org/bot{}/getMe", f"123456789:{m.word(35)}"),
        ("GET https://host/data?token={}&x=1", m.plain()),
        ("https://acc.blob.core.windows.net/c?sv=2024&sig={}", f"{m.word(12)}%2B{m.word(12)}%3D"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature={}&x=2", m.word(64, "0123456789abcdef")),
        ("https://chat.googleapis.com/v1/spaces/A/messages?key={}", m.word(39)),
        # Connection strings and files.
        ("AccountName=a;AccountKey={};EndpointSuffix=x", f"{m.word(40)}=="),
        ("Endpoint=sb://x/;SharedAccessKey={};x", m.word(20)),
        ("Server=db;User=sa;Password={};", m.plain()),
        ("Driver={{x}};Uid=me;Pwd={};", m.plain()),
        ("machine host login bob password {}", m.plain()),
        ('{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}',
        base64.b64encode(b"bob:pw-" + m.word(9).encode()).decode()),
        ("aws_secret_access_key = {}", f"{m.word(20)}/{m.word(19)}"),
        ("//registry.example/:_authToken={}", str(uuid.UUID(int=m.random.getrandbits(128)))),
        ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", m.word(64)),
        ('"-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"', m.word(64)),
        # Assignments.
        ('{{"token": "{}"}}', m.plain()),
        ("{{'password': '{}'}}", m.plain()),
        ("{{\\'password\\': \\'{}\\'}}", m.plain()),
        ('{{\\"api_key\\": \\"{}\\"}}', m.plain()),
        ('{{\\\\\\"secret\\\\\\": \\\\\\"{}\\\\\\"}}', m.plain()),
        ("HF_TOKENS={} was set", m.plain()),
        ("TOKEN2={}", m.plain()),
        ("FERNET_KEY={}", f"{m.word(20)}-{m.word(22)}="),
        ("SSH_KEY='{}'", m.plain()),
        ("DEPLOY_KEY: '{}'", m.plain()),
        ("storage_options={{'key': 'AKIAX', 'secret': '{}'}}", m.plain()),
        ("connect(host='x', passwd='{}')", m.plain()),
        ("run --token={} --n 3", m.plain()),
        ("run --api-key {} --n 3", m.plain()),
        ("run --verbose --password {}", m.plain()),
        ("run --token needs{}", m.plain(4)),
        ("password: {}", f"{m.plain(7)}7"),
        ("export CLIENT_SECRET={}", m.plain()),
        ("clientSecret: '{}'", m.plain()),
        # Headers.
        ("Authorization: token {}", m.plain()),
        ("header Authorization: Bearer {}", m.word(24)),
        ("{{'Authorization': 'Basic {}'}}",
        base64.b64encode(b"bob:" + m.word(9).encode()).decode()),
        ("('authorization', '{}')", m.plain(16)),
        ("Cookie: session={}; theme=dark", m.plain(16)),
        ("Set-Cookie: sid={}; Path=/", m.plain(16)),
        ("X-Api-Key: {}", m.plain(16)),
        ("PRIVATE-TOKEN: {}", f"{m.plain(16)}1"),
        ("curl -u bob:{} https://host", m.plain()),
        # Tokens of services.
        ("ghp_{} and more", m.word(36)),
        ("see github_pat_{}", f"{m.word(22)}_{m.word(59)}"),
        ("glpat-{} expired", m.word(20)),
        ("xoxb-123456789012-{}", m.word(24)),
        ("key {} is wrong", f"AKIA{m.word(16, string.ascii_uppercase + string.digits)}"),
        ("sk-proj-{}", m.word(40)),
        ("sk_live_{}", m.word(24)),
        ("SG.{}", f"{m.word(22)}.{m.word(43)}"),
        ("pypi-AgEIcHlwaS5vcmc{}", m.word(90)),
        ("hf_{}", m.word(34)),
        ("dop_v1_{}", m.word(64, "0123456789abcdef")),
        ("npm_{}", m.word(36)),
        ("AIza{}", m.word(35)),
        ("ya29.{}", m.word(60)),
        ("{} is a token", f"{jwt}.{m.word(43)}"),
        ("{} of Telegram", f"123456789:{m.word(35)}"),
        ("bot {} of Discord", f"M{m.word(23)}.{m.word(6)}.{m.word(27)}"),
        ("sq0csp-{}", m.word(43)),
        ("AC{} of Twilio", m.word(32, "0123456789abcdef")),
        ("unknown_{} of a service", m.word(40)),
        ("login with {}", m.word(40)),
    ]  # fmt: skip
    return {text.format(secret): secret for text, secret in pairs}


def harmless_texts() -> list[str]:
    """Return 200 texts of runs and logs that hold no secret."""
    m = _Maker("harmless")
    digests = [f(str(i).encode()).hexdigest() for i in range(12) for f in (md5, sha1, sha256)]
    tasks = [
        f"{name}-{md5(name.encode()).hexdigest()}"
        for name in (
            "sum", "sum-aggregate", "read-parquet-fused", "getitem", "rechunk-merge", "shuffle-p2p",
            "hash-join", "mean_combine-partial", "random_sample", "from_pandas", "tokenize",
            "key_split", "to-bag", "_finalize", "dataframe-groupby-count-chunk",
            "blockwise-create-read", "original-open_dataset-temperature", "store-map",
        )
    ]  # fmt: skip
    ids = [str(uuid.UUID(int=m.random.getrandbits(128), version=4)) for _ in range(16)]
    versions = [
        "2026.8.0", "1.5.0rc2", "v0.21.0", "3.11.4+dirty", "2.0.0.post1", "2024.3.1.dev3+g1a2b3c4",
        "tokenizers 0.15.2", "secretstorage==3.3.3", "pytest-secrets 1.0", "asttokens=3.0.0",
        "python-jose[cryptography]>=3.3,<4", "keyring 25.1.0", "py310h1234567_0", "passlib 1.7.4",
        "dask-2026.8.0-pyhd8ed1ab_0.conda", "numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "git+https://github.com/dask/dask@main", "git+ssh://git@github.com/x/y",
        f"git+https://github.com/dask/distributed@{digests[1]}", "conda-forge::libarrow-acero",
    ]  # fmt: skip
    addresses = [
        "tcp://127.0.0.1:8786", "tls://scheduler-0.dask.svc.cluster.local:8786", "s3://bucket/a@b/c",
        "https://example.org/a/b@c?x=1#token", "http://10.0.0.1:8787/status", "ucx://10.1.2.3:1",
        "inproc://192.168.1.5/1234/1", "https://hooks.example.org/", "abfs://c@acc.dfs.example/x",
        "https://conda.anaconda.org/conda-forge", "https://cdn.example/react@18/react.js",
        "https://pypi.example/simple/", "http://[::1]:8787/", "gs://bucket/part-0.parquet",
        "https://github.com/dask/distributed/issues/1234#issuecomment-99", "/t/data.csv",
        "https://example.org/services", "file:///home/me/.ssh/id", "/srv/keys/server.pem",
        "/home/me/project/.git/hooks/pre-commit", "/opt/token/lib/python3.11/site-packages",
        "https://example.org/search?q=token&sort=key&page=2", "10.0.0.1:8786", "me@example.org",
    ]  # fmt: skip
    source = [
        "token = tokenize(array)", "key = keys[0]", "for key, value in items.items():",
        "def tokenize(*args: object, ensure_deterministic: bool | None = None) -> str:",
        "frame.set_index(key='customer')", "sort_key = lambda row: row[1]", "by = ['key', 'value']",
        "frame.merge(other, on='key', how='left')", "dask_key_name='total'", "auth=None",
        "password: str | None = None", "token=token", "secret=self.secret", "key='key'",
        "def login(user: str, password: str) -> None:", "authenticate(token=get_token())",
        "client.submit(function, key=f'load-{i}', pure=False)", "partition_key = 'region'",
        "assert result.key == 'sum-1'", "password = os.environ['PASSWORD']",
        "tokens = text.split()",
        "n_tokens: 512", "max_tokens=4096", "keyboard=qwerty1234", "monkey=banana", "hot_key: 17",
        "group_keys=False", "primary_key: customer_id", "sorted(names, key=str.lower)",
        "passes=3", "compass='north east'", "pattern: 'part-*.parquet'", "sigma = 0.25",
        "signal: 'SIGTERM received'", "author: 'someone else'", "patience=10", "path=/data/x1",
        "class Float64Dtype(ExtensionDtype):", "from distributed.security import Security",
        "x = da.random.random((10000, 10000), chunks=(1000, 1000))", "cache_key='abcdefgh123'",
        "raise KeyError('no such key: customer')", "hash_key: 'c_custkey'", "skey = 3",
    ]  # fmt: skip
    logs = [
        "distributed.worker - WARNING - Unmanaged memory use is high: 512 MiB -- limit: 1.00 GiB",
        "distributed.scheduler - INFO - Register worker addr: tcp://127.0.0.1:40001 name: 0",
        "distributed.nanny - WARNING - Restarting worker", "Basic statistics of the run",
        "bearer of",
        f"Compute Failed Key: {tasks[0]} State: executing", f"KeyError: '{tasks[1]}'",
        f"Worker <WorkerState 'tcp://127.0.0.1:4', status: closed> failed {tasks[2]}",
        "Event loop was unresponsive in Nanny for 3.05s.", "FutureCancelledError: key sum-1 lost",
        "2026-11-27T19:32:04.123456+00:00", "20261127T193204Z",
        "20 blocks of 3 runs, 95 % interval",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB",
        "WorkerTableSchemeV2 has no attribute", "libcudart12amd64linuxgnu", "Python 3.11.4 (main)",
        "AssertionError: 1234567890.12 != 1234567891.12", "exit code 143", "linux-6.1.0-x86_64",
        "Token indices sequence length is longer than the maximum", "the password is missing",
        "authorization failed for this user", "key: value pairs are expected", "secrets: none",
        "pip install --index-url https://pypi.example/simple dask", "benchkit run -k 'array.*'",
        "--keep 3 --workers 4 --tag note=first", "ssh-rsa", "dtype='<M8[ns]'",
        "sha256:" + digests[2],
        "AuthenticationError: the token has expired", "Signature: (x, y=None)", "cookie jar",
        "--webhook slack: set its URL",
        "--basic-auth needs --cookie-secret, which signs the visitors' cookies",
        "--oauth-key requires --oauth-secret", "error: --token must be a word",
        "A worker holds 12 keys", "p2p_bytes 104857600", "h2o.q5[size=small,method=p2p]",
        "shards of tokenized text", "private network 10.0.0.0/8", "sk-learn and sk-image",
        "hf_hub downloads", "a passkey is no password", "token_type",
    ]  # fmt: skip
    groups = [digests, tasks, ids, versions, addresses, source, logs]
    return [text for group in groups for text in group]
