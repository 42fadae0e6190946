"""An engine that is watched, as a server's is."""

from chairlift.core.engine import Engine
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.watch.view import View


def viewed(engine: Engine) -> View:
    engine.runner = stopwatch = Stopwatch(engine.runner, engine.clock)
    view = View(engine.scheduler, engine.clock, stopwatch)
    engine.observer = view if engine.observer is None else Observers(engine.observer, view)
    return view
