import pytest

from benchkit.show.plots.thread_activity import format_event


@pytest.mark.parametrize(
    ("message", "text"),
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
def test_format_event_describes_fields_in_words(message, text):
    assert format_event(message) == text
