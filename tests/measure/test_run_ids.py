import os
import threading
import time
import uuid

import pytest

from benchkit.measure import run_ids
from benchkit.measure.run_ids import derived_id, id_time, is_id, new_id


def test_new_id_is_uuid_of_version_7():
    parsed = uuid.UUID(new_id())

    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


def test_new_ids_are_increasing():
    ids = [new_id() for _ in range(20_000)]

    assert ids == sorted(set(ids))


def test_new_ids_increase_despite_clock_change(monkeypatch):
    before = new_id()
    monkeypatch.setattr(run_ids.time, "time_ns", lambda: 1)

    assert before < new_id() < new_id()


def test_new_ids_of_threads_differ():
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend([new_id() for _ in range(2000)]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ids)) == 16_000


def test_id_time_is_creation_time():
    before = time.time()

    assert before - 0.002 <= id_time(new_id()) <= time.time()


def test_derived_id_depends_on_time_and_text():
    assert derived_id(1785587400.25, "a") == derived_id(1785587400.25, "a")
    assert derived_id(1785587400.25, "a") != derived_id(1785587400.25, "b")
    assert derived_id(1785587400.25, "a") != derived_id(1785587400.251, "a")


def test_derived_id_keeps_time_in_milliseconds():
    run_id = derived_id(1785587400.123, "a")

    assert id_time(run_id) == 1785587400.123
    assert is_id(run_id)
    assert uuid.UUID(run_id).version == 7


def test_derived_ids_sort_by_time():
    assert derived_id(1.0, "z") < derived_id(1.001, "a") < derived_id(1e9, "a")


@pytest.mark.parametrize(
    "text",
    ["", "x", "../../etc/passwd", str(uuid.uuid4()), new_id().upper(), new_id() + "\n"],
    ids=["empty", "letter", "path", "uuid4", "upper", "newline"],
)
def test_id_time_rejects_other_text(text):
    assert not is_id(text)
    with pytest.raises(ValueError, match="UUID of version 7"):
        id_time(text)


def test_derived_id_rejects_time_before_1970():
    with pytest.raises(ValueError, match="1970"):
        derived_id(-1.0, "x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_new_ids_of_forked_processes_differ(monkeypatch):
    monkeypatch.setattr(run_ids.time, "time_ns", lambda: 10**18)  # all in one millisecond
    new_id()
    reader, writer = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.write(writer, "".join(new_id() for _ in range(20)).encode())
            os._exit(0)
    for _ in range(8):
        os.wait()
    os.close(writer)
    text = os.fdopen(reader).read()

    ids = [text[start : start + 36] for start in range(0, len(text), 36)]
    assert len(ids) == len(set(ids)) == 160
