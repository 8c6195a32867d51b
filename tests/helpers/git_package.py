"""A small package in a Git repository, and workloads that use it."""

import subprocess

WORKLOAD = """import time
from benchkit.measure import workload

def nap(seconds):
    import naplib
    time.sleep(seconds * naplib.FACTOR)

@workload(requires=["naplib"])
def naps(client, scale):
    "Sleep as long as a package says."
    return client.submit(nap, 0.3)

@workload
def even(client, scale):
    "Sleep the same always."
    return client.submit(time.sleep, 0.3)
"""


#: A backend in the repository: pip and uv would install another one for each build.
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "naplib"
version = "1.0"
"""
BACKEND = """import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info, name = "naplib-1.0.dist-info", "naplib-1.0-py3-none-any.whl"
    paths = [*Path("naplib").rglob("*.py"), *Path(".").glob("*.pth")]
    texts = {path.as_posix(): path.read_text() for path in paths}
    texts[f"{info}/METADATA"] = "Metadata-Version: 2.1\\nName: naplib\\nVersion: 1.0\\n"
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    texts[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        for path, text in texts.items():
            wheel.writestr(path, text)
    return name
"""


def commit_package(folder, code, message, project=PROJECT):
    """Commit a version of the package, the first in a new repository; return its hash."""
    (folder / "naplib").mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    (folder / "pyproject.toml").write_text(project)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "naplib" / "__init__.py").write_text(code)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
