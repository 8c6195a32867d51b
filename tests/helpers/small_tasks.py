"""Tasks for tests on small clusters."""

import time


def slowly(number):
    """Take a tenth of a second."""
    time.sleep(0.1)
    return number


def add(*numbers):
    """Return a sum."""
    return sum(numbers)


def broken(number):
    """Fail."""
    raise ZeroDivisionError("of a test")
