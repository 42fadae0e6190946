"""Series made at a scrape from the sums of others.

A ratio of sums is right for several engines; a sum of ratios is not.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from chairlift.telemetry.metrics.series import SERIES


def derived(metrics: Iterable[Metric]) -> Iterator[Metric]:
    samples = {metric.name: metric.samples for metric in metrics}
    capacity = sum(sample.value for sample in samples.get("chairlift_kv_capacity_blocks", ()))
    if capacity:
        blocks = samples.get("chairlift_kv_blocks", ())
        held = sum(sample.value for sample in blocks if sample.labels["state"] == "held")
        series = SERIES["chairlift_kv_held_ratio"]
        metric = Metric(series.name, series.help, series.kind)
        metric.add_sample(series.name, {}, held / capacity)
        yield metric
