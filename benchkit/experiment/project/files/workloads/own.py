"""Workloads of this project: replace the function by your own code."""

from benchkit import Scale, expect, workload


@workload(category="own", tags={"quick"}, variants={"method": ["single", "batched"]})
def sums(client, scale: Scale, *, method):
    """Sum of numbers, one task each or a hundred together."""
    numbers = range(2000)
    if method == "single":
        parts = client.map(abs, numbers, pure=False)
    else:
        ranges = [numbers[start : start + 100] for start in range(0, 2000, 100)]
        parts = client.map(sum, ranges, pure=False)
    return sum(client.gather(parts))


@sums.check
def sums_is_right(result):
    """Compare with the formula of the sum."""
    expect(result, equals=2000 * 1999 // 2)
