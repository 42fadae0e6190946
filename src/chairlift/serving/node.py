"""The parent process of a node: engines without HTTP, for a server on another machine."""

import time
from collections.abc import Sequence
from dataclasses import replace

from chairlift.build import find_model
from chairlift.config.cluster_key import read_key
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.child import Child
from chairlift.live.processes.supervisor import Supervisor, Watched, on_signals
from chairlift.serving.addresses import LAST_PORT, after, claim, facing, split, tcp
from chairlift.serving.agent import agent_main
from chairlift.serving.banner import stopped
from chairlift.serving.engines import Engines
from chairlift.serving.parent import check_device, ended_by_signals, new_run_folder
from chairlift.telemetry.log_lines import say, set_up_logging
from chairlift.telemetry.metrics.parent import ParentMetrics


def run_node(settings: Settings) -> int:
    """Runs engines until it is told to stop; the exit code."""
    return ended_by_signals(lambda: _run(settings))


def _run(settings: Settings) -> int:
    started = time.monotonic()
    set_up_logging(settings.log_level, settings.log_format)
    for warning in settings.warnings:
        say(warning, "WARNING")
    if settings.join is None:
        raise InvalidConfig("--join HOST:PORT is missing: the address that `chairlift serve --cluster` prints")
    settings = replace(settings, cluster_key=read_key(settings.cluster_key))
    check_device(settings)
    public = _addresses(settings)
    model = find_model(settings)
    for warning in model.config.warnings:
        say(warning, "WARNING")
    say(f"starting {model.name} for {settings.join}, at {', '.join(public)}")
    told: list[int] = []
    ready: list[float] = []  # when it was
    on_signals(lambda number, _: told.append(number))  # what starts from here on has to be cleaned up
    with new_run_folder(settings) as folder:
        counted = ParentMetrics(folder.metrics, model.name)
        pieces_at = [after(address, len(public)) for address in public]
        engines = Engines(model, folder, counted.engine_starts_again, public, pieces_at)

        def on_ready(reports: Sequence[list[str]]) -> None:
            summary = reports[0]
            ready.append(time.monotonic())
            say(f"ready in {time.monotonic() - started:.1f} s: {summary[0]}")
            for line in (*summary[1:], f"joined {settings.join}"):
                say(line)

        node = Supervisor(
            [
                *engines.kept(settings.engine_timeout),
                Watched(lambda: Child("agent", agent_main, model, folder, public)),
            ],
            progress=engines.progress,
            clear_up=lambda _: 0,
            drain_timeout=lambda: settings.drain_timeout,
            on_engine_death=engines.tell_end,
            num_engines=settings.replicas,
        )
        code = node.run(say, on_ready, told)
        if ready:
            say(stopped(time.monotonic() - ready[0]))
        return code


def _addresses(settings: Settings) -> list[str]:
    """Of each engine, for other machines: consecutive ports where one is given."""
    assert settings.join is not None
    option = "--address HOST:PORT"
    given = settings.address or facing(*split(settings.join))
    is_bare = settings.address is None or ":" not in given.rpartition("]")[2]
    host, first = (given.strip("[]"), 0) if is_bare else split(given)
    if first + settings.replicas - 1 > LAST_PORT:
        raise InvalidConfig(f"address {given}: {settings.replicas} engines need as many ports; choose a lower one")
    found: list[str] = []
    for replica in range(settings.replicas):
        while (address := tcp(*claim(host, first + replica if first else 0, option))) in found:
            pass  # a free port is chosen anew
        found.append(address)
    return found
