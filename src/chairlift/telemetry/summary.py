"""The figures of a recorded run from its trace, equal to those of the run itself."""

from chairlift.telemetry.lines import Add, Input, Plan
from chairlift.telemetry.report import Report, Slo
from chairlift.telemetry.timeline import Timeline
from chairlift.telemetry.trace import Trace, samples_of


def summarize(trace: Trace, slo: Slo | None = None) -> Report:
    timeline = Timeline()
    for line in trace:
        if not isinstance(line, Input):
            timeline.add(line)
        elif isinstance(line, Add):
            timeline.added(samples_of(line), line.at - (line.delay_s or 0.0))
        elif isinstance(line, Plan) and line.step is not None:
            timeline.stepped(line.num_decoding, line.blocks, line.blocks_saved)
    return timeline.report(slo)
