"""The values below which parts of a histogram's observations lie, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from prometheus_client import Histogram

PARTS = (0.5, 0.9, 0.99)


def of_buckets(bounds: Sequence[float], counts: Sequence[float]) -> list[float] | None:
    """The median, p90 and p99; None where nothing was observed.

    `counts` has how many lie below each bound and above the one before it, and at its end those above all bounds.
    """
    whole = sum(counts)
    return [_below(bounds, counts, part * whole) for part in PARTS] if whole else None


def of_histograms(histogram: Histogram) -> dict[str, list[float]]:
    """The same of each series, by the value of its last label; "" where it has none."""
    cumulative: dict[str, list[tuple[float, float]]] = {}
    for metric in histogram.collect():
        for sample in metric.samples:
            if sample.name.endswith("_bucket"):
                labels = [value for name, value in sample.labels.items() if name != "le"]
                buckets = cumulative.setdefault(labels[-1] if labels else "", [])
                buckets.append((float(sample.labels["le"]), sample.value))
    found = {}
    for series, buckets in cumulative.items():
        sums = [0.0, *(count for _, count in buckets)]
        counts = [after - before for before, after in pairwise(sums)]
        if (quantiles := of_buckets([bound for bound, _ in buckets[:-1]], counts)) is not None:
            found[series] = quantiles
    return found


def _below(bounds: Sequence[float], counts: Sequence[float], wanted: float) -> float:
    """Where so many lie below, as if those of a bucket were spread evenly in it."""
    seen, low = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if seen + count >= wanted and count:
            return low + (bound - low) * (wanted - seen) / count
        seen, low = seen + count, bound
    return low
