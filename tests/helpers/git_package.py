"""A small package in a Git repository, and workloads that use it."""

import subprocess
import sys

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
BACKEND = """import re
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    project = Path("pyproject.toml").read_text()
    name, version = (re.search(key + ' = "(.*)"', project)[1] for key in ("name", "version"))
    stem = f"{name.replace('-', '_')}-{version}"
    info, wheel = f"{stem}.dist-info", f"{stem}-py3-none-any.whl"
    paths = [*Path("naplib").rglob("*.py"), *Path(".").glob("*.pth")]
    texts = {path.as_posix(): path.read_text() for path in paths}
    about = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
    texts[f"{info}/METADATA"] = about
    texts[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    texts[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(Path(folder, wheel), "w") as file:
        for path, text in texts.items():
            file.writestr(path, text)
    return wheel
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


def release_package(folder, version, wheels):
    """Tag the last commit as a release, and build its wheel into a folder of releases."""
    git(folder, "tag", f"v{version}")
    wheels.mkdir(exist_ok=True)
    code = f"import backend; backend.build_wheel({str(wheels)!r})"
    subprocess.run([sys.executable, "-B", "-c", code], cwd=folder, check=True)


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
