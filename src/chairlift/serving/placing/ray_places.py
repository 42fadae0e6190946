"""Replicas placed by Ray: an actor for each, in a placement group of its own, so that none waits for another's room.

    actor (detached, restarted by Ray) -> `chairlift node` process -> engine, ranks

Always: no token passes through Ray. Actors outlive this process, so that its next start finds them by name; they end
with the server, or when their lease is over. The only module that imports Ray.
"""

import contextlib
import logging
import socket
from typing import Any

import ray
import ray.exceptions
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from chairlift.serving.placing.needs import Machine, Needs
from chairlift.serving.placing.placed_node import NodeState, PlacedNode
from chairlift.serving.placing.placement import Place, Stage

_NAMESPACE = "chairlift"
_GOODBYE_S = 3.0


def connect(address: str) -> tuple[str, str]:
    """The address of the cluster, and this machine's in it. Raises `ConnectionError` if there is no Ray."""
    ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
    return ray.get_runtime_context().gcs_address, ray.util.get_node_ip_address()


def disconnect() -> None:
    ray.shutdown()


def machines() -> list[Machine]:
    found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Machine(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in found]


class RayPlaces:
    def __init__(self, run: str, command: list[str], key: str, needs: Needs) -> None:
        """`run`: a name that no other server has."""
        self._run, self._command, self._key, self._needs = run, command, key, needs
        self._groups: dict[int, PlacementGroup] = {}
        self._actors: dict[int, Any] = {}
        self._asked: dict[int, Any] = {}  # an answer that is awaited

    def place(self, replica: int) -> None:
        name = f"{self._run}-{replica}"
        group = self._groups[replica] = self._group(name)
        self._actors[replica] = (
            ray.remote(PlacedNode)
            .options(
                name=name,
                get_if_exists=True,
                lifetime="detached",
                max_restarts=-1,
                num_cpus=self._needs.num_cpus,
                num_gpus=self._needs.num_gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
            )
            .remote(self._command, self._key, _forsake)
        )

    def look(self, replica: int) -> Place:
        asked = self._asked.pop(replica, None) or self._actors[replica].look.remote()
        if not ray.wait([asked], timeout=0)[0]:
            self._asked[replica] = asked
            return Place(Stage.SILENT if self._has_room(replica) else Stage.WAITING)
        try:
            state: NodeState = ray.get(asked)
        except ray.exceptions.ActorUnavailableError:
            return Place(Stage.STARTING)
        except ray.exceptions.RayError as error:
            return Place(Stage.FAILED, reason=" ".join(str(error).split())[-300:])
        self._asked[replica] = self._actors[replica].look.remote()
        return Place(Stage.RUNNING, state)

    def drain(self, replica: int) -> None:
        self._actors[replica].drain.remote()

    def remove(self, replica: int) -> None:
        self._asked.pop(replica, None)
        actor = self._actors.pop(replica)
        with contextlib.suppress(ray.exceptions.RayError):  # it is gone already
            if self._has_room(replica):
                ray.wait([actor.end.remote()], timeout=_GOODBYE_S)
            ray.kill(actor)
            ray.util.remove_placement_group(self._groups.pop(replica))

    def _group(self, name: str) -> PlacementGroup:
        try:
            return ray.util.get_placement_group(name)
        except ValueError:
            bundle = {"CPU": self._needs.num_cpus, "GPU": self._needs.num_gpus}
            bundles = [{resource: count for resource, count in bundle.items() if count}]
            return ray.util.placement_group(bundles, name=name, lifetime="detached")

    def _has_room(self, replica: int) -> bool:
        state: str = ray.util.placement_group_table(self._groups[replica])["state"]
        return state == "CREATED"


def _forsake() -> None:
    """Called in an actor whose server is gone."""
    group = ray.util.get_current_placement_group()
    if group is not None:
        ray.util.remove_placement_group(group)
    ray.kill(ray.get_runtime_context().current_actor)


def is_listening(address: str) -> bool:
    """Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3.0).close()
    except OSError:
        return False
    return True
