import io

from chairlift.lab.bench.display import PLAIN_EVERY_S, Display, RunProgress
from chairlift.lab.bench.messages import ClientProgress
from chairlift.lab.bench.record import Ending
from fakes.bench_records import record


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(seconds: float) -> RunProgress:
    made = RunProgress(100, seconds=seconds)
    made.add(0, ClientProgress(2, 3, 1000, [record(0, 0.0, (1.0,))]))
    made.add(1, ClientProgress(1, 0, int(500 * seconds), [record(1, ending=Ending.FAILED)]))
    return made


def test_without_a_terminal_a_line_is_printed_every_few_seconds() -> None:
    out, now = io.StringIO(), [100.0]
    display = Display(out, lambda: now[0])
    for seconds in range(12):
        now[0] = 100.0 + seconds
        display.show(progress(seconds))
    display.close()
    lines = out.getvalue().splitlines()
    assert len(lines) == 11 // PLAIN_EVERY_S
    assert lines[0] == "bench 5.0 s: 2/100 ended, 1 failed; 3 running, 3 waiting; 0 chunks/s"


def test_a_terminal_has_one_line_that_is_erased() -> None:
    out, now = Terminal(), [0.0]
    display = Display(out, lambda: now[0])
    for tenths in range(5):
        now[0] = tenths / 10
        display.show(progress(tenths / 10))
    assert out.getvalue().rpartition("\r")[2].strip().endswith("500 chunks/s")
    display.close()
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith(" \r")
