"""The process that places replicas on Ray, and the short one that finds the cluster before a server starts.

Always: it can end and begin anew at any time; nodes notice only if it stays away for longer than their lease. What it
hears of the load comes from the members' list. Ray lives in these processes alone: it has threads and signal handlers
of its own.
"""

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass

import msgspec
import zmq

from chairlift.config.cluster_key import read_key
from chairlift.config.extras import check_extra
from chairlift.config.options.node import node_flags
from chairlift.config.options.scaling import make_scaling
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.routing.replicas import RUNNING_TOKENS
from chairlift.live.nodes.messages import Members, Published
from chairlift.live.processes.child import GROUP_SIGNALS, STOP, Child, ReportReady
from chairlift.serving import process_setup
from chairlift.serving.placing.needs import needs_of
from chairlift.serving.placing.placement import Placement
from chairlift.serving.process_setup import RunFolder
from chairlift.telemetry.log_lines import say, set_up_logging

_STEP_S = 1.0
_FIND_S = 60.0  # for a cluster that listens and does not answer
_RETRY_S = 2.0
_REFUSALS = (ConnectionError, RuntimeError, ValueError, SystemExit)  # of Ray's, to connect
_GOODBYE_S = 10.0  # to end the nodes of a server that was killed; else their leases do


@dataclass(frozen=True, slots=True)
class FoundRay:
    address: str
    host: str  # this machine's address in the cluster


def find_ray(settings: Settings) -> FoundRay:
    """Refuses, in one line each, a missing package and a cluster that cannot be reached."""
    check_extra(f"--cluster {settings.cluster}", "ray")
    if settings.compat.file is not None:
        raise InvalidConfig(
            f"--cluster {settings.cluster}: nodes do not read llm-serving files; give the options of "
            f"{settings.compat.file} as flags or in a file of ours"
        )
    child = Child("ray", _find_main, settings)
    try:
        if not child.pipe.poll(_FIND_S):
            raise InvalidConfig(_unreachable(settings.cluster, f"it does not answer within {_FIND_S:.0f} s"))
        found: FoundRay = child.wait_ready()
        return found
    finally:
        child.kill()
        child.close()


def _find_main(report: ReportReady, settings: Settings) -> None:
    from chairlift.serving.placing import ray_places

    assert settings.ray is not None
    _silence()
    if settings.ray != "auto" and not ray_places.is_listening(settings.ray):
        raise InvalidConfig(_unreachable(settings.cluster, "nothing listens there"))
    try:
        report(FoundRay(*ray_places.connect(settings.ray)))
    except _REFUSALS as error:
        raise InvalidConfig(_unreachable(settings.cluster, (str(error).splitlines() or [""])[0])) from error
    ray_places.disconnect()


def _silence() -> None:
    """Ray prints what it hears of other processes; what matters is said here."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  until the process ends


def _unreachable(cluster: str | None, why: str) -> str:
    return (
        f"--cluster {cluster}: cannot reach the Ray cluster: {why}; start Ray on this machine (`ray start --head`, or "
        "`ray start --address HOST:PORT` where there is a cluster)"
    )


def placement_main(report: ReportReady, settings: Settings, folder: RunFolder, found: FoundRay, join: str) -> None:
    """`settings`: as the user gave them, with a key. `join`: the address of the members' list."""
    set_up_logging(settings.log_level, settings.log_format)
    _silence()
    stop, is_over = threading.Event(), threading.Event()
    signal.signal(STOP, lambda *_: stop.set())

    def say_goodbye() -> None:
        stop.set()
        is_over.wait(_GOODBYE_S)

    with process_setup.outliving_parent(folder, say_goodbye):
        report(None)
        if _connect(found, stop):
            _place(settings, folder, join, stop)
        is_over.set()


def _connect(found: FoundRay, stop: threading.Event) -> bool:
    """False: told to stop before."""
    is_told = False
    while not _connects(found.address):
        if not is_told:
            say(f"Ray at {found.address} does not answer; replicas are placed again when it does")
            is_told = True
        if stop.wait(_RETRY_S):
            return False
    for number in GROUP_SIGNALS:  # Ray handles them otherwise
        signal.signal(number, signal.SIG_IGN)
    return True


def _connects(address: str) -> bool:
    """A head that has just been started listens before it can be connected to."""
    from chairlift.serving.placing import ray_places

    if not ray_places.is_listening(address):
        return False
    try:
        ray_places.connect(address)
    except _REFUSALS:
        ray_places.disconnect()
        return False
    return True


def _place(settings: Settings, folder: RunFolder, join: str, stop: threading.Event) -> None:
    from chairlift.serving.placing import ray_places

    scaling = None if settings.autoscale is None else make_scaling(settings.autoscale)[0]
    most = settings.replicas if scaling is None else scaling.most
    needs, settings = needs_of(settings, ray_places.machines(), most)
    command = ["-m", "chairlift", "node", "--join", join, *node_flags(settings)]
    places = ray_places.RayPlaces(folder.path.name, command, read_key(settings.cluster_key), needs)
    placement = Placement(places, settings.replicas, scaling, say, needs.in_words())
    loads = Loads(folder)
    try:
        while not stop.wait(_STEP_S):
            placement.step(time.monotonic(), loads.heard())
    finally:
        placement.end()
        loads.close()


class Loads:
    """The load of all replicas, as the members' list publishes it."""

    def __init__(self, folder: RunFolder) -> None:
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.subscribe(b"")
        self._socket.connect(folder.members)
        self._decoder = msgspec.msgpack.Decoder(Published)

    def close(self) -> None:
        self._socket.close()

    def heard(self) -> float | None:
        """In tokens, as routing counts; None: nothing new was published."""
        load = None
        while self._socket.poll(0):
            message = self._decoder.decode(self._socket.recv())
            if isinstance(message, Members):
                load = float(sum(each.queued + RUNNING_TOKENS * each.num_running for each in message.engines))
        return load
