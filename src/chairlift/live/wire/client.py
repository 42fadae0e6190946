"""The front end's side of the wire: routes requests to replicas and hands out their outputs.

Always: a request outlives its engine. Its tokens are kept here, and it goes on from them in another replica, or in the
next engine where there is one replica; requests that come while there is none wait. A request ends by itself, by an
abort, by ending an engine again and again, or with `EngineUnavailable` when no engine will come. Outputs are handed out
where they arrive, by a call and without a task between; a listener that fails loses its own request and no other.

A request that may have crashed its replica stays with it and runs by itself there when it is back (design/0021): other
replicas never meet it. All others move at once, each under a new key, so that what is still on its way from the old
replica is not taken for the new one's.

Knows replicas by their places alone: `replica_links.py` has the rest, and tells here what happens to them.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from msgspec.structs import replace as replace_fields

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.core.routing.rebalancing import Rebalancing, Waiting
from chairlift.core.routing.roster import Role
from chairlift.core.routing.router import Router
from chairlift.core.routing.rules import LeastLoaded
from chairlift.live.adapters.registry import Adapter
from chairlift.live.moving.ticket import Ticket
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire import messages
from chairlift.live.wire.generation import Generation, Listener
from chairlift.live.wire.messages import Submit
from chairlift.live.wire.replica_links import ReplicaLinks
from chairlift.live.wire.watch_client import WatchClient

DEATH, DRAIN, ROLE, REBALANCE = "death", "drain", "role", "rebalance"  # why requests move


class EngineClient:
    def __init__(
        self,
        addresses: Sequence[str],
        name: str,
        router: Router | None = None,
        look: Callable[[int], InterruptedWork | None] = lambda replica: None,
        is_cluster: bool = False,
        roles: Sequence[Role] = (),
        draw_seed: Callable[[], int] = lambda: secrets.randbits(64),
        on_moved: Callable[[str, bool], None] = lambda why, with_kv: None,
    ) -> None:
        """`addresses`, `look`, `is_cluster` and `roles` are of replicas: see `ReplicaLinks`. `draw_seed`: of a request
        that brings none. `on_moved`: a request goes on in another replica: why, and whether with its keys and
        values."""
        local = [(address, partial(look, replica)) for replica, address in enumerate(addresses)]
        self.replicas = ReplicaLinks(self, name, local, router or LeastLoaded(), is_cluster, roles)
        self.info: messages.EngineInfo | None = None  # of the replica with the tightest limits; None: no engine yet
        self.num_held = 0  # bytes held for slow clients
        self.on_moved = on_moved
        self._draw_seed = draw_seed
        self._name = name.encode()
        self._generations: dict[int, Generation] = {}
        self._keys = itertools.count(1)
        self._rebalancing = Rebalancing(self.replicas.routing)

    @property
    def is_ready(self) -> bool:
        """Whether there is an engine now; without one, requests wait for the next."""
        return self.replicas.is_ready

    @property
    def num_running(self) -> int:
        return self.replicas.num_running

    @property
    def num_waiting(self) -> int:
        return self.replicas.num_waiting

    @property
    def watching(self) -> WatchClient:
        return self.replicas.watched.client

    def submit(
        self,
        prompt: list[int],
        params: SamplingParams,
        max_output: int,
        listener: Listener,
        *,
        attributes: Attributes = NO_ATTRIBUTES,
        expires: float | None = None,
        name: str = "",
        is_traced: bool = False,
        adapter: Adapter | None = None,
    ) -> Generation:
        """Sends a request that fits the engine (`output_room`). Raises `EngineUnavailable` before the first engine and
        after the last. The listener is not called before this returns."""
        if self.info is None:
            raise EngineUnavailable("the engine is not ready; try again in a moment")
        if params.seed is None and not params.is_greedy:  # here, so that every engine samples the same
            params = replace(params, seed=self._draw_seed())
        key = next(self._keys)
        submit = Submit(key, prompt, params, max_output, attributes, expires, name, is_traced)
        submit = submit if adapter is None else messages.with_adapter(submit, adapter)
        generation = self._generations[key] = Generation(self, submit, listener)
        self._place(generation, submit, prompt)
        return generation

    def abort(self, key: int, sample: int | None) -> None:
        generation = self._generations.get(key)
        if sample is None:
            self.forget(key)
        replica = None if generation is None else generation.replica
        if replica is not None and self.replicas.is_linked(replica):
            self.replicas.send(replica, messages.Abort(key, sample))

    def forget(self, key: int) -> None:
        self._generations.pop(key, None)

    def give_up(self) -> None:
        """No engine will come: requests fail, waiting ones and later ones."""
        self.info = None
        lost, self._generations = self._generations, {}
        for generation in lost.values():
            generation.lose(EngineUnavailable("the engine went away; try again in a moment"))

    def has_adapter(self, adapter: int) -> bool:
        return any(each.attributes.adapter == adapter for each in self._generations.values())

    def hear(self, message: messages.Moved | messages.Kept) -> None:
        generation = self._generations.get(message.key)
        if generation is None:
            return
        if isinstance(message, messages.Moved):
            self._resume(generation, generation.moving or REBALANCE, message.ticket)
        else:
            generation.recalled_to = None

    def hear_step(self, replica: int, step: messages.Step) -> None:
        generations, service = self._generations, self.replicas.service
        is_counting = service.is_on
        for output in step.outputs:
            generation = generations.get(output.key)
            if generation is not None:
                if is_counting and output.token is not None:
                    service.count(replica, generation.service_of(output))
                generation.put(output)
        if self.replicas.roster.is_prefill(replica):
            self._hand_over(replica, step)
        if self.replicas.are_several and (info := self.replicas.info(replica)) is not None:
            self._recall(replica, info)

    def welcome(self, replica: int, ready: messages.Ready) -> None:
        """Sends the requests that stayed with the replica and those that wait for any, in order of arrival."""
        self.info = self.replicas.tightest
        suspects = set(ready.suspects)
        for key, generation in list(self._generations.items()):
            if generation.replica is None:
                self._resume(generation)
            elif generation.replica == replica:
                if not generation.is_judged and generation.blame(key in suspects, ready.is_alone, ready.was_killed):
                    self.replicas.send(replica, messages.Proven())
                message = generation.resumed()
                if message is not None:
                    generation.sent(replica, key)
                    self.replicas.send(replica, message)

    def leave(self, replica: int) -> None:
        for generation in self._at(replica):
            if self._takers(generation) & ~(1 << replica) and generation.may_move:
                self._move(generation, replica, DRAIN)

    def lose(self, replica: int) -> None:
        if self.replicas.tightest is None:  # none is expected back: new requests are refused, those that are open wait
            self.info = None
        for generation in self._at(replica):
            self._resume(generation)

    def judge(self, replica: int, left: InterruptedWork) -> int:
        """Moves the requests of a dead replica, now that it is known how its engine ended; what may have crashed it
        stays. If the next engine is ready before, its own word decides, as where there is one replica."""
        keys = set(left.keys.get(self._name, ()))
        lost = self._at(replica)
        fresh = {generation.key for generation in lost if generation.key in keys and not generation.has_made}
        staying = set() if left.was_killed else fresh or keys
        num_proven = 0
        for generation in lost:
            if generation.blame(generation.key in keys, left.is_alone, left.was_killed):
                num_proven += 1
            elif generation.key in staying or generation.is_strong:
                generation.is_judged = True
            else:
                self._resume(generation, DEATH)
        return num_proven

    def _at(self, replica: int) -> list[Generation]:
        return [each for each in self._generations.values() if each.replica == replica]

    def _move(self, generation: Generation, replica: int, why: str) -> None:
        """Has a request leave its replica: at once, or when the replica has let go of it, with its keys and values."""
        info = self.replicas.info(replica)
        if info is not None and info.moves_kv and generation.has_made:
            generation.moving = why
            self.replicas.send(replica, messages.Move(generation.key, is_forced=why == ROLE))
        else:
            self.replicas.send(replica, messages.Abort(generation.key, has_moved=True))
            self._resume(generation, why)

    def _hand_over(self, replica: int, step: messages.Step) -> None:
        """Requests that have made a token in a prefill replica go on in a decode replica, if there is one."""
        for key in dict.fromkeys(output.key for output in step.outputs if output.token is not None):
            generation = self._generations.get(key)
            if generation is None or not generation.may_move:
                continue
            if not self._takers(generation) >> replica & 1:
                self._move(generation, replica, ROLE)

    def _resume(self, generation: Generation, why: str = DEATH, ticket: Ticket | None = None) -> None:
        """Sends a request with the tokens it has to a replica that takes it, under a new key. `ticket`: for keys and
        values of these."""
        if self._generations.pop(generation.key, None) is None:
            return
        if generation.replica is not None:
            self.on_moved(why, ticket is not None)
        target = generation.recalled_to if why == REBALANCE else None
        generation.key, generation.replica = next(self._keys), None
        self._generations[generation.key] = generation
        message = generation.resumed()
        if message is not None:
            self._place(generation, replace_fields(message, ticket=ticket), generation.known_tokens, target)

    def _place(self, generation: Generation, message: Submit, tokens: Sequence[int], target: int | None = None) -> None:
        """Sends a request to the target, or to the replica that the router names; without one it waits."""
        takers = self._takers(generation)
        if not takers:
            return
        num_moved = 0 if message.ticket is None else message.ticket.num_tokens
        replica = self.replicas.route(tokens, generation.attributes, takers, num_moved, target)
        info = self.replicas.info(replica)
        if generation.fingerprint is None and info is not None:
            generation.fingerprint = info.fingerprint
        generation.sent(replica, generation.key)
        self.replicas.send(replica, message)

    def _takers(self, generation: Generation) -> int:
        """Replicas that may take a request, as bits."""
        return self.replicas.takers(generation.fingerprint, generation.num_made > 0)

    def _recall(self, replica: int, info: messages.EngineInfo) -> None:
        """Calls requests back that wait in a replica, which has told its load, and had better wait in another. Each is
        called back once, and only before anything was made of it. The engine answers: it has let go of the request
        (`Moved`), or keeps it because it has begun (`Kept`)."""
        among = partial(self.replicas.takers, info.fingerprint)
        if not self._rebalancing.is_due(replica, info.limits.max_step_tokens, among, time.monotonic()):
            return
        there = [each for each in self._generations.values() if each.replica == replica and not each.num_made]
        waiting = [each for each in there if not each.was_recalled and each.may_move]
        recalled = [len(each.prompt) for each in there if each.recalled_to is not None]

        def find(index: int) -> Waiting:
            each, attributes = waiting[index], waiting[index].attributes
            takers = self.replicas.takers(each.fingerprint)
            return Waiting(each.prompt, attributes.prefix_root, attributes.user, attributes.adapter, takers)

        share = self._rebalancing.share(replica, [len(each.prompt) for each in there])
        lengths = [len(each.prompt) for each in waiting]
        for index, target in self._rebalancing.to_recall(replica, among(), share, lengths, find, recalled):
            waiting[index].recalled_to, waiting[index].was_recalled = target, True
            self.replicas.send(replica, messages.Recall(waiting[index].key))
