"""The front end's side of the wire: routes requests to replicas and hands out their outputs.

Always: a request outlives its engine. Its tokens are kept here, and it goes on from them in another replica, or in the
next engine where there is one replica; requests that come while there is none wait. A request ends by itself, by an
abort, by ending an engine again and again, or with `EngineUnavailable` when no engine will come. Outputs are handed out
where they arrive, by a call and without a task between; a listener that fails loses its own request and no other.

A request that may have crashed its replica stays with it and runs by itself there when it is back (design/0021): other
replicas never meet it. All others move at once, each under a new key, so that what is still on its way from the old
replica is not taken for the new one's.

Replicas on other machines come and go (`add`, `remove`); a place that was left is taken by the next. One that is lost
counts as killed, unless its node says otherwise soon (`looks.py`).
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from msgspec.structs import replace as replace_fields

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import EngineUnavailable
from chairlift.core.params import SamplingParams
from chairlift.core.routing.hashes import span_of
from chairlift.core.routing.news import PrefixChanges
from chairlift.core.routing.replicas import members
from chairlift.core.routing.roles import Role
from chairlift.core.routing.roster import Roster
from chairlift.core.routing.router import Router
from chairlift.core.routing.routing import Routing
from chairlift.core.routing.rules import LeastLoaded
from chairlift.live.adapters.registry import Adapter
from chairlift.live.adapters.unloading import Unloads
from chairlift.live.moving.ticket import Ticket
from chairlift.live.recovery.step_note import InterruptedWork
from chairlift.live.wire import messages
from chairlift.live.wire.curve import Curve
from chairlift.live.wire.generation import Generation, Listener
from chairlift.live.wire.link import Link
from chairlift.live.wire.link_runs import LinkRuns
from chairlift.live.wire.loads import loads
from chairlift.live.wire.looks import LookAtOne, Looks
from chairlift.live.wire.messages import Submit
from chairlift.live.wire.recalls import Recalls
from chairlift.live.wire.service_told import ServiceTold
from chairlift.live.wire.watched import Watched

DEATH, DRAIN, ROLE, REBALANCE = "death", "drain", "role", "rebalance"  # why requests move
_log = logging.getLogger(__name__)

# What the engine of a replica that died was busy with; None while it is not known how it ended.
Look = Callable[[int], InterruptedWork | None]


class EngineClient:
    def __init__(
        self,
        addresses: Sequence[str],
        name: str,
        router: Router | None = None,
        look: Look = lambda replica: None,
        is_cluster: bool = False,
        roles: Sequence[Role] = (),
    ) -> None:
        """`addresses`: of the replicas on this machine. `look` is asked where there are several. `is_cluster`: others
        may be added. `roles`: of each, if they have any."""
        self.info: messages.EngineInfo | None = None  # of the replica with the tightest limits; None: no engine yet
        self.draw_seed: Callable[[], int] = partial(secrets.randbits, 64)  # of a request that brings none
        self.num_held = 0  # outputs held for slow clients
        self._watched = Watched(self._send_if_ready)
        self.watching = self._watched.client
        self._name = name.encode()
        self._is_cluster = is_cluster
        self._routing = Routing(router or LeastLoaded(), len(addresses))
        self._recalls = Recalls(self._routing, self._takers_like, self._send)
        self._links = [self._link(replica, address, None, replica) for replica, address in enumerate(addresses)]
        self._looks = Looks([partial(look, replica) for replica in range(len(addresses))], self._judge)
        self._left: set[int] = set()  # places of replicas that were removed
        self._runs = LinkRuns()
        self._is_ready = asyncio.Event()
        self._generations: dict[int, Generation] = {}
        self._keys = itertools.count(1)
        self._roster = Roster(roles)
        self._service = ServiceTold(self._send_if_ready)
        self._num_proven = [0] * len(addresses)  # requests found guilty, to be told to the next engine
        self._unloads = Unloads(self._ask_to_unload, self._is_adapted)
        # A request goes on in another replica: why, and whether with its keys and values.
        self.on_moved: Callable[[str, bool], None] = lambda why, with_kv: None

    def _link(self, replica: int, address: str, curve: Curve | None, number: int) -> Link:
        hear, lose = partial(self._hear, replica), partial(self._lose, replica)
        return Link(address, self._name.decode(), hear, lose, curve, number)

    def add(self, address: str, curve: Curve, look: LookAtOne, number: int) -> int:
        """The place of a replica on another machine. It takes requests once it answers. `number`: for operators."""
        replica = min(self._left, default=len(self._links))
        link = self._link(replica, address, curve, number)
        if replica in self._left:
            self._left.remove(replica)
            self._links[replica] = link
        else:
            self._routing.grow()
            self._links.append(link)
            self._num_proven.append(0)
        self._looks.set(replica, look)
        if self._runs.is_on:
            self._runs.start(replica, link)
        return replica

    def remove(self, replica: int) -> None:
        """A replica that is gone, for good as far as is known: what stayed with it goes on elsewhere."""
        self._runs.stop(replica)
        was_ready = self._links[replica].is_ready
        self._links[replica].info, self._num_proven[replica] = None, 0
        self._left.add(replica)
        self._looks.end(replica)
        if was_ready:
            self._forget_replica(replica)
        self._roster.drain(replica, False)
        if all(link.info is None for link in self._links):
            self.info = None  # none is expected back: new requests are refused, those that are open wait
        for generation in [each for each in self._generations.values() if each.replica == replica]:
            self._resume(generation)

    def renumber(self, replica: int, number: int) -> None:
        self._links[replica].number = number

    def is_linked(self, replica: int) -> bool:
        return self._links[replica].is_ready

    @property
    def num_running(self) -> int:
        return sum(link.num_running for link in self._links)

    @property
    def num_waiting(self) -> int:
        return sum(link.num_waiting for link in self._links)

    def loads(self) -> list[dict[str, object]]:
        """Each replica as operators see it, by number."""
        there = {replica: link for replica, link in enumerate(self._links) if replica not in self._left}
        return loads(there, self._routing.replicas, self._roster, self._watched.replica)

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
            params = replace(params, seed=self.draw_seed())
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
        if generation is not None and generation.replica is not None and self._links[generation.replica].is_ready:
            self._send(generation.replica, messages.Abort(key, sample))

    def forget(self, key: int) -> None:
        self._generations.pop(key, None)

    def drain(self, number: int, is_on: bool) -> bool:
        """Asks a replica to be left by its requests, or to take some again; False when it is not there."""
        return any(link.number == number and link.send_if_ready(messages.Drain(is_on)) for link in self._links)

    async def unload(self, adapter: int) -> None:
        """Has all replicas forget an adapter that is offered no more; returns when its last request has ended."""
        await self._unloads.wait(adapter)

    def _ask_to_unload(self, adapter: int) -> list[int]:
        ready = members(self._roster.ready)
        for replica in ready:
            self._send(replica, messages.Unload(adapter))
        return ready

    def _is_adapted(self, adapter: int) -> bool:
        return any(each.attributes.adapter == adapter for each in self._generations.values())

    @property
    def is_ready(self) -> bool:
        """Whether there is an engine now; without one, requests wait for the next."""
        return self._is_ready.is_set()

    async def until_ready(self) -> None:
        await self._is_ready.wait()

    def give_up(self) -> None:
        """No engine will come: requests fail, waiting ones and later ones."""
        self.info = None
        lost, self._generations = self._generations, {}
        for generation in lost.values():
            generation.lose(EngineUnavailable("the engine went away; try again in a moment"))

    async def run(self) -> None:
        """Stays connected until cancelled; a broken wire is a bug, and raises."""
        try:
            await self._runs.until_broken(self._links)
        finally:
            self.watching.lose()
            await self._runs.stop_all()

    def _hear(self, replica: int, message: messages.FromEngine) -> None:
        if isinstance(message, messages.Step):
            self._routing.tell(replica, message.queued, message.num_running, message.num_taken)
            generations, is_counting = self._generations, self._service.is_on
            for output in message.outputs:
                generation = generations.get(output.key)
                if generation is not None:
                    if is_counting and output.token is not None:
                        self._service.count(replica, generation.service_of(output))
                    generation.put(output)
            if self._roster.is_prefill(replica):
                self._hand_over(replica, message)
            if len(self._links) > 1 and (info := self._links[replica].info) is not None:
                self._recalls.look(replica, info, self._generations.values())
        elif isinstance(message, messages.Moved):
            generation = self._generations.get(message.key)
            if generation is not None:
                self._resume(generation, generation.moving or REBALANCE, message.ticket)
        elif isinstance(message, messages.Kept):
            generation = self._generations.get(message.key)
            if generation is not None:
                generation.recalled_to = None
        elif isinstance(message, messages.Unloaded):
            self._unloads.hear(replica, message.adapter)
        elif isinstance(message, messages.Prefixes):
            self._learn(replica, message)
        elif isinstance(message, messages.Draining):
            self._set_draining(replica, message.is_on)
        elif isinstance(message, messages.Snapshot | messages.Explained):
            self._watched.hear(replica, message)
        elif isinstance(message, messages.Ready):
            self._welcome(replica, message)
            self._watched.come(replica)

    def _learn(self, replica: int, message: messages.Prefixes) -> None:
        changes = PrefixChanges(message.version, message.published, message.lost)
        if message.is_whole:
            self._routing.learn_whole(replica, changes)
        elif not self._routing.learn(replica, changes):
            self._send(replica, messages.AskPrefixes())

    def _welcome(self, replica: int, ready: messages.Ready) -> None:
        """Sends the requests that stayed with the replica and those that wait for any, in order of arrival."""
        known = [link.info for link in self._links if link.info is not None]
        self.info = min(known, key=lambda info: (info.limits.max_pool_tokens, info.limits.max_model_len))
        self._routing.span = span_of(ready.info.limits.block_size)
        self._routing.begin(replica)
        self._looks.end(replica)
        self._roster.come(replica, ready.info.fingerprint)
        self._service.come(replica, ready.info.counts_users)
        was_drained = self._roster.is_drained(replica)
        if was_drained and not ready.is_draining:  # the engine before was, and has died
            self._send(replica, messages.Drain(True))
        self._set_draining(replica, ready.is_draining or was_drained)
        self._is_ready.set()
        for _ in range(self._num_proven[replica]):
            self._send(replica, messages.Proven())
        self._num_proven[replica] = 0
        suspects = set(ready.suspects)
        for key, generation in list(self._generations.items()):
            if generation.replica is None:
                self._resume(generation)
            elif generation.replica == replica:
                if not generation.is_judged and generation.blame(key in suspects, ready.is_alone, ready.was_killed):
                    self._send(replica, messages.Proven())
                message = generation.resumed()
                if message is not None:
                    generation.sent(replica, key)
                    self._send(replica, message)

    def _lose(self, replica: int) -> None:
        """The engine of a replica is gone: requests move to others, if there are any, or wait for the next engine."""
        self._forget_replica(replica)
        if len(self._links) > 1 or self._is_cluster:
            self._looks.begin(replica)

    def _forget_replica(self, replica: int) -> None:
        self._routing.end(replica)
        self._roster.go(replica)
        self._unloads.lose(replica)
        self._service.go(replica)
        self._watched.go(replica, members(self._roster.ready))
        if not self._roster.ready:
            self._is_ready.clear()

    def _judge(self, replica: int, left: InterruptedWork) -> None:
        """Moves the requests of a dead replica, now that it is known how its engine ended; what may have crashed it
        stays. If the next engine is ready before, its own word decides, as where there is one replica."""
        keys = set(left.keys.get(self._name, ()))
        lost = [generation for generation in self._generations.values() if generation.replica == replica]
        fresh = {generation.key for generation in lost if generation.key in keys and not generation.has_made}
        staying = set() if left.was_killed else fresh or keys
        for generation in lost:
            if generation.blame(generation.key in keys, left.is_alone, left.was_killed):
                self._num_proven[replica] += 1
            elif generation.key in staying or generation.is_strong:
                generation.is_judged = True
            else:
                self._resume(generation, DEATH)

    def _set_draining(self, replica: int, is_on: bool) -> None:
        self._roster.drain(replica, is_on)
        self._routing.replicas.set_open(replica, not is_on)
        if is_on and self._routing.replicas.open:
            for generation in [each for each in self._generations.values() if each.replica == replica]:
                if self._takers(generation) & ~(1 << replica) and generation.may_move:
                    self._move(generation, replica, DRAIN)

    def _move(self, generation: Generation, replica: int, why: str) -> None:
        """Has a request leave its replica: at once, or when the replica has let go of it, with its keys and values."""
        info = self._links[replica].info
        if info is not None and info.moves_kv and generation.has_made:
            generation.moving = why
            self._send(replica, messages.Move(generation.key, is_forced=why == ROLE))
        else:
            self._send(replica, messages.Abort(generation.key, has_moved=True))
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
        if target is not None:
            takers = takers & self._routing.replicas.open & 1 << target or takers
        attributes = generation.attributes
        num_moved = 0 if message.ticket is None else message.ticket.num_tokens
        replica = self._routing.route(
            tokens, attributes.prefix_root, attributes.user, takers, num_moved, adapter=attributes.adapter
        )
        for failure in self._routing.failures:
            _log.warning("%s; the least loaded replica is chosen from here on", failure)
        self._routing.failures.clear()
        info = self._links[replica].info
        if generation.fingerprint is None and info is not None:
            generation.fingerprint = info.fingerprint
        generation.sent(replica, generation.key)
        self._send(replica, message)

    def _takers(self, generation: Generation) -> int:
        """Replicas that may take a request, as bits."""
        return self._takers_like(generation.fingerprint, generation.num_made > 0)

    def _takers_like(self, fingerprint: str | None, has_made: bool = False) -> int:
        return self._roster.takers(fingerprint, has_made, len(self._links) - len(self._left))

    def _send_if_ready(self, replica: int, message: messages.ToEngine) -> bool:
        return self._links[replica].send_if_ready(message)

    def _send(self, replica: int, message: messages.ToEngine) -> None:
        self._links[replica].send(message)
