import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_doctor_checks_cluster_and_kernel_without_secrets(tmp_path):
    import os

    env = {**os.environ, "AWS_ACCESS_KEY_ID": "AKIASECRET", "GITHUB_TOKEN": "ghp_secret"}
    done = subprocess.run(
        [sys.executable, "-m", "benchkit", "doctor", "--json", "--store", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
    )
    results = {row["check"]: row for row in json.loads(done.stdout)}

    assert results["cluster"]["status"] == "ok"
    assert results["kernel"]["status"] == "ok"
    assert results["store"]["status"] == "absent"
    assert "S3, GitHub" in results["credentials"]["detail"]
    assert "SECRET" not in done.stdout.upper().replace("SECRETS", "")
