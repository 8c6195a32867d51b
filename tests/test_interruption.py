"""Handlers of the signals that end a command, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAD = """
import os, signal
from benchkit.interruption import interrupt_at_signals, interrupted_code, uninterrupted

def send(name):
    os.kill(os.getpid(), getattr(signal, name))

def handler(name):
    return signal.getsignal(getattr(signal, name))

"""
PROTECTED = """
interrupt_at_signals()
try:
    with uninterrupted():
        send("SIGTERM")
        print("registered")
    print("not reached")
except KeyboardInterrupt:
    send("SIGTERM")  # while the command ends
    print("ended", interrupted_code())
    send("SIGINT")
"""
IMPORTING = """
import pathlib, sys, tempfile, time
interrupt_at_signals()
with tempfile.TemporaryDirectory() as folder:
    code = "import __main__, time; __main__.send('SIGTERM'); time.sleep(0.2); print('imported')"
    pathlib.Path(folder, "slow_module.py").write_text(code)
    sys.path.insert(0, folder)
    try:
        import slow_module
        time.sleep(30)
    except KeyboardInterrupt:
        print("ended", interrupted_code())
"""
EXECUTING = """
import time
interrupt_at_signals()
try:
    exec("import time; send('SIGTERM'); time.sleep(0.2); print('executed')")
    time.sleep(30)
except KeyboardInterrupt:
    print("ended", interrupted_code())
"""
WHILE_A_PROGRAM_STARTS = """
import subprocess
from benchkit.captured_process import run_captured
interrupt_at_signals()
started = []
class Popen(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        started.append(self)
        send("SIGTERM")
subprocess.Popen = Popen
try:
    run_captured(["sleep", "60"])
except KeyboardInterrupt:
    print("ended", interrupted_code(), started[0].returncode)
"""
NOHUP = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt_at_signals()
send("SIGHUP")
print(handler("SIGHUP") is signal.SIG_IGN)
"""
FORKED = """
interrupt_at_signals()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
os.kill(child, signal.SIGTERM)
print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == signal.SIGTERM)
"""
STARTED = """
interrupt_at_signals()
import subprocess, sys
code = "import signal; print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(PROTECTED, "registered\nended 143\n", id="a signal waits, others are ignored"),
        pytest.param(IMPORTING, "imported\nended 143\n", id="a signal waits for an import"),
        pytest.param(EXECUTING, "executed\nended 143\n", id="a signal waits for a text of exec"),
        pytest.param(WHILE_A_PROGRAM_STARTS, "ended 143 -9\n", id="a program that starts ends"),
        pytest.param(NOHUP, "True\n", id="nohup"),
        pytest.param(FORKED, "True\n", id="a forked process has no handler"),
        pytest.param(STARTED, "True\n", id="a started process has no handler"),
    ],
)  # fmt: skip
def test_signal_is_handled(code, printed):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip

    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
