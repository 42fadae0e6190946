"""An engine that is watched, as a server's is."""

from collections.abc import Callable

from chairlift.core.engine import Engine
from chairlift.telemetry.device import DeviceUse
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.stopwatch import Stopwatch
from chairlift.telemetry.watch.view import View


def viewed(engine: Engine, device: Callable[[], DeviceUse | None] = lambda: None) -> View:
    engine.runner = stopwatch = Stopwatch(engine.runner, engine.clock)
    view = View(engine.scheduler, engine.clock, stopwatch, device=device)
    engine.observer = view if engine.observer is None else Observers(engine.observer, view)
    return view
