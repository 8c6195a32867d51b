from benchkit.measure.recording import Recording, RecordingWriter


def test_what_was_drained_before_a_kill_is_read_back(tmp_path):
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    writer.segment({"tasks": {"start": b"\0" * 16}, "keys": ["x", "y"], "state": {"t_on": 1.0}})
    writer.segment({"tasks": {"start": b"\0" * 8}, "keys": ["z"]})

    read = Recording.read(writer.path)

    assert not read.finished
    assert read.column("tasks", "start", "d").tolist() == [0.0, 0.0, 0.0]
    assert read.rows("keys") == ["x", "y", "z"]
    assert read.last("state") == {"t_on": 1.0}


def test_a_damaged_segment_is_named_and_the_others_are_kept(tmp_path):
    writer = RecordingWriter(tmp_path, "one")
    writer.head(workload="a.b")
    writer.segment({"keys": ["x"]})
    writer.segment({"keys": ["y"]})
    (writer.path / "000001.json").write_text("{broken")
    writer.tail(outcome="ok")

    read = Recording.read(writer.path)

    assert read.rows("keys") == ["y"]
    assert read.problems[0].startswith("000001.json")
