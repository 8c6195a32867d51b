"""A scheduler and workers that speak TLS, with certificates that are made for one test."""

import datetime
import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.clusters.project import MARK, accepts_connections, free_port, stop, wait_until

DAY = datetime.timedelta(days=1)


def certificates(folder: Path) -> dict[str, Any]:
    """Make an authority and a certificate for 127.0.0.1; return Dask's settings for them."""
    authority_key, authority = _certificate("test authority", None)
    key, certificate = _certificate("127.0.0.1", (authority_key, authority))
    folder.mkdir(parents=True)
    for name, content in [("ca.pem", authority), ("cert.pem", certificate)]:
        (folder / name).write_bytes(content.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    own = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    roles = {role: dict(own) for role in ("client", "scheduler", "worker")}
    tls = {"ca-file": str(folder / "ca.pem"), **roles}
    return {"distributed": {"comm": {"require-encryption": True, "tls": tls}}}


def _certificate(name: str, issuer):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing_key, signer = (key, subject) if issuer is None else (issuer[0], issuer[1].subject)
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return key, builder.sign(signing_key, hashes.SHA256())


@contextmanager
def tls_cluster(
    folder: Path, mark: str, *, n_workers: int, nthreads: int, memory_limit: int
) -> Iterator[str]:
    """Yield the address of a scheduler whose workers have nannies."""
    certificate = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    scheduler = ["scheduler", "--host", "tls://127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = ["worker", address, "--nthreads", str(nthreads), "--memory-limit", str(memory_limit)]
    worker += ["--host", "127.0.0.1", "--no-dashboard", "--local-directory", str(folder)]
    servers = []
    try:
        for command in [scheduler, *[worker] * n_workers]:
            with (folder / f"{command[0]}.log").open("ab") as log:
                module = f"distributed.cli.dask_{command[0]}"
                server = subprocess.Popen(
                    [sys.executable, "-m", module, *command[1:], *certificate],
                    cwd=folder,
                    env={**os.environ, MARK: mark},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            servers.append(server)
            wait_until(lambda: accepts_connections(port), f"scheduler: {folder}", 60)
        log = folder / "worker.log"
        registered = "Registered to:"
        wait_until(lambda: log.read_text().count(registered) == n_workers, f"workers: {log}", 60)
        yield address
    finally:
        for server in reversed(servers):
            stop(server)
