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


PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "naplib"
version = "1.0"
"""


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)
