import pytest

from benchkit.show.dashboard.run.problems import in_words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('{"rss": 1035849728}', "988 MiB in use"),
        (
            '{"n_lost": 1, "n_processing": 2, "expected": false}',
            "1 lost, 2 processing, not expected",
        ),
        ('{"status": "paused", "before": "running"}', "from running to paused"),
        ('{"key": "(\'x\', 1)", "lost": true}', "key ('x', 1), lost"),
        ('{"moved": {"a": 1}}', 'moved {"a": 1}'),
        ("{}", ""),
        ("no JSON", "no JSON"),
        ("[1, 2]", "[1, 2]"),
        ("", ""),
    ],
)
def test_an_event_is_told_as_a_person_would(message, words):
    assert in_words(message) == words
