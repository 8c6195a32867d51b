"""The Python code and commands of README and CONTRIBUTING run as printed."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from helpers.commands import run_forked

from validation import s3_server

ROOT = Path(__file__).parent.parent
#: README, and pages whose code needs a bucket, papermill or a script of its own.
PAGES = (
    "README.md",
    "docs/guides/measure.md",
    "docs/guides/environments.md",
    "docs/reference/settings.md",
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(name, language):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [body for kind, body in BLOCK.findall(text) if kind == language]


def run(words, folder):
    return run_forked(words, folder, BENCHKIT_STORE="benchkit-store")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_to_files_and_headings(name):
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        if not link.startswith("http"):
            assert not path or (ROOT / path).exists(), link
            assert path or anchor in anchors, link


@pytest.fixture
def folder(tmp_path):
    """Empty folder with links to notebooks and workloads, as in a clone."""
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    return tmp_path


#: The block that the next test runs alone.
OWN_CODE = "interleave"


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [body for page in PAGES for body in blocks(page, "python") if OWN_CODE not in body],
    ids=lambda body: body.split("\n")[1],
)
def test_readme_python_runs(folder, body):
    script = folder / "script.py"
    script.write_text(f"{body}\n" if "__main__" in body else _as_script(body))
    done = run([script], folder)

    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_readme_example_of_own_code_ends_in_a_verdict_each_time(folder):
    (body,) = (body for body in blocks("README.md", "python") if OWN_CODE in body)
    body = body.replace("2000", "500")  # tasks: the verdict is the same
    for repeats in (2, 6):  # the second finds the runs of the first
        (folder / "script.py").write_text(body.replace("repeats=6", f"repeats={repeats}"))
        done = run(["script.py"], folder)

        assert done.returncode == 0, done.stderr[-2000:]
        assert "not interleaved" not in done.stdout
    assert re.search(
        r"^sums +duration .* ▼ (?:about \d+ times )?faster +6 \+ 6(?:, \d+ disturbed)?$",
        done.stdout,
        re.MULTILINE,
    )


def _as_script(body):
    """Put the block where a script's cluster needs it: worker processes import the script."""
    return "if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", [b for page in PAGES for b in blocks(page, "console") if "$ " in b]
)
def test_readme_commands_run(folder, body, request, monkeypatch):
    if "s3://" in body:
        bucket, url = re.search(r"s3://([\w-]+)", body)[1], request.getfixturevalue("s3_emulator")
        s3_server.create_bucket(url, bucket)
        for name, value in s3_server.variables(url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BENCHKIT_CACHE", str(folder / "cache"))
    for line in body.splitlines():
        words = shlex.split(line.removeprefix("$ "))
        assert words[0] in ("benchkit", "papermill")
        done = run(words, folder)

        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"


@pytest.mark.slow
def test_contributing_workload_runs(folder):
    (folder / "own").mkdir()
    (folder / "own" / "array.py").write_text(blocks("CONTRIBUTING.md", "python")[0])
    command = "run --workloads own --scale 0.1 --store store array.largest"
    done = run(["benchkit", *command.split()], folder)

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count(" ok ") == 2


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/guides/engines.md"])
def test_pages_promise_no_release(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "pip install 'dask-benchkit" not in text


def test_readme_first_commands_create_environment():
    first, second = (body.strip() for body in blocks("README.md", "console")[:2])

    assert first.startswith("python3 -m venv .venv && ")
    assert second.startswith("python3 -m venv .venv && ")
    assert "benchkit run" in first
    assert "benchkit report run" in first
    assert second.endswith("python -m pytest -n 4")


def test_committed_files_contain_no_machine_paths():
    done = subprocess.run(
        ["git", "grep", "-nE", r"(/home/|/root/|/Users/)[a-z]", "--", ":!tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.stdout == ""
