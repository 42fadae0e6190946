from array import array

from chairlift.lab.bench.client_limit import ClientLimit
from chairlift.lab.bench.messages import ClientUsage
from fakes.bench_records import record


def usage(processor_s: float, lags: float = 0.001) -> ClientUsage:
    return ClientUsage(10.0, processor_s, array("d", [lags] * 50).tobytes())


def test_clients_that_kept_up_raise_no_doubt() -> None:
    records = [record(sent_s=1.001, due_s=1.0, times=range(3000))]
    limit = ClientLimit.of([usage(2.0), usage(4.0)], records, machine=0.5)
    assert (limit.clients, limit.busiest, limit.doubts) == (2, 0.4, [])
    assert limit.us_per_chunk == 2000.0
    assert limit.max_chunks_per_s == 2 * 0.8 / 0.002
    assert 0.0009 < limit.late_s.max < 0.0011


def test_each_limit_reached_is_a_doubt() -> None:
    limit = ClientLimit.of([usage(9.0, 0.02)], [record(sent_s=1.5, due_s=1.0)], machine=0.99)
    busy, machine, lag, late = limit.doubts
    assert "90% of a core: it limits the figures" in busy
    assert "99% busy" in machine
    assert "20.0 ms late" in lag
    assert "500.0 ms late" in late


def test_few_chunks_give_no_maximum_rate() -> None:
    assert ClientLimit.of([usage(2.0)], [record(times=range(100))], machine=0.5).max_chunks_per_s is None


def test_an_empty_run_raises_no_doubt() -> None:
    assert ClientLimit.of([], [], 0.0).doubts == []
