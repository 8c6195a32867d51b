"""End commands by signals at random moments: ``python benchmarks/command_faults.py [--times N]``.

Ends with exit code 1 if a process, a port, a file or a secret is left.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

sys.path.insert(0, str(Path(__file__).parent.parent))

from validation.ended_commands import AB, BISECT, NIGHTLY, RUN, SECRET, EndedCommand
from validation.synthetic_runs import make_run

from benchkit import Store

#: Command -> arguments, and states of which one is awaited.
COMMANDS = {
    "run": (RUN, ("kernel", "worker", "task")),
    "ab": (AB, ("kernel", "worker", "task", "run")),
    "nightly": (NIGHTLY, ("kernel", "worker", "task", "run")),
    "bisect": (BISECT, ("bisection ", "tool")),
    "report": (("report", "run", "latest", "-o", "page.html"), ("kernel",)),
    "dashboard": (("dashboard", "--port", "0"), ("http://",)),
    "dashboard, 2 processes": (
        ("dashboard", "--port", "0", "--num-procs", "2"),
        ("http://",),
    ),
}
#: Seconds after the state in which the signal comes.
MAX_DELAY_S = 3.0


def main() -> int:
    """Print what is left by each command and signal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(given.times):
        problems = _end_once(random.Random(given.seed * 1_000_000 + number), counts)
        if problems:
            counts["with a fault"] += 1
            print(f"number {number}: {problems}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return int(counts["with a fault"] > 0)


def _end_once(chance: random.Random, counts: Counter[str]) -> list[str]:
    """Start a command, send it a signal, and return what is wrong."""
    name = chance.choice(list(COMMANDS))
    words, states = COMMANDS[name]
    state = chance.choice(states)
    sent = signal.Signals(chance.choice((SIGTERM, SIGTERM, SIGINT, SIGHUP, SIGKILL)))
    to_group = chance.random() < 0.5
    folder = Path(tempfile.mkdtemp(prefix="commands-"))
    if name.startswith(("report", "dashboard")):
        Store(folder / "store").add(make_run())
    command = EndedCommand(words, folder, BENCHKIT_CACHE=str(folder / "cache"))
    try:
        command.await_state(state)
        time.sleep(chance.uniform(0, MAX_DELAY_S))
        raw = command.files_with_secret()
        if command.process.poll() is not None:
            counts["ended before"] += 1
            return []
        command.send(sent, to_group=to_group)
        code = command.await_end()
        counts[sent.name] += 1
        left = command.remains()
        if sent == SIGKILL:  # the next command removes temporary files, a check adopts recordings
            left.pop("temporary", None)
            left.pop("drafts", None)
        wanted = -sent if sent == SIGKILL else 128 + sent
        problems = [f"{kind} left: {names}" for kind, names in left.items()]
        problems += [f"secret while it ran: {raw}"] if raw else []
        problems += [f"exit code {code}"] if code != wanted else []
        problems += ["traceback"] if "Traceback" in command.text else []
        problems += ["secret printed"] if SECRET in command.text else []
        head = f"{name}, {sent.name} {'to its group' if to_group else ''} after {state}"
        return [head, *problems, command.text] if problems else []
    finally:
        command.kill()
        shutil.rmtree(command.temporary, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
