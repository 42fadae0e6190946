"""A request as its front end keeps it: its message and its tokens, across engines and replicas.

Always: every output is handed out once and in order, whatever becomes of engines. What was sent to a client is never
asked for again.
"""

import math
import time
from collections import deque
from typing import Protocol

import msgspec
from msgspec.structs import replace as replace_fields

from chairlift.core.attributes import Attributes
from chairlift.core.errors import ChairliftError
from chairlift.core.policy import Service
from chairlift.live.recovery.quarantine import Suspicion
from chairlift.live.wire import messages
from chairlift.live.wire.messages import Output, Submit

MAX_HELD = 48 * 2**20  # bytes held for slow clients in one front end
_PER_OUTPUT = 48  # bytes beside its own
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Output).decode
_PROVEN = "this request ended the engine {}, each time with nothing else in flight; it is not tried again"


class TooSlow(ChairliftError):
    """A request was ended because its client did not read its outputs."""


class Listener(Protocol):
    """Gets the outputs of a request. Nothing comes after the last output of its last sample, nor after `fail`."""

    def put(self, output: Output) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Wire(Protocol):
    """What a request needs of its client."""

    num_held: int  # bytes held for slow clients

    def abort(self, key: int, sample: int | None) -> None: ...

    def forget(self, key: int) -> None: ...


class Generation:
    """One request with all its samples, across engines. While it is held, its outputs are kept for later.

    `Listener.fail` gets `EngineUnavailable` when no engine will come. A request that the engine refuses or fails, or
    that ends the engine, ends with an output whose `finish` is "error".
    """

    __slots__ = (
        "_asked", "_client", "_held", "_is_held", "_listener", "_lost", "_num_before", "_open", "_submit", "_suspicion",
        "_tokens", "fingerprint", "is_judged", "key", "moving", "num_made", "recalled_to", "replica", "was_recalled",
    )  # fmt: skip

    def __init__(self, client: Wire, submit: Submit, listener: Listener) -> None:
        self._client = client
        self._submit = submit
        self.num_made = 0  # tokens, handed out or held
        self.key = submit.key  # another one for each replica
        self.replica: int | None = None  # where it is; None: nowhere, it waits for one
        self.fingerprint: str | None = None  # of the first
        self.moving: str | None = None  # why it was asked to leave its replica, until that has let go of it
        self.recalled_to: int | None = None  # where it had better wait, until its replica has answered
        self.was_recalled = False  # once is enough
        self.is_judged = False  # it stays with a replica that died, and was blamed for that
        self._num_before = 0  # tokens that came before it was sent to this replica
        self._asked = time.monotonic()
        self._listener = listener
        samples = range(submit.params.num_samples)
        self._open = set(samples)  # samples whose last output was not handed out or aborted
        self._tokens: dict[int, list[int]] = {i: [] for i in samples}  # of samples that the engine has not ended
        self._suspicion: Suspicion | None = None
        self._held: deque[bytes] = deque()  # outputs, encoded: a score takes a tenth of its room
        self._is_held = False
        self._lost: Exception | None = None

    def abort(self) -> None:
        """Frees the request in the engine; at any time, and more than once."""
        if self._open:
            self._open.clear()
            self._tokens.clear()
            self._drop_held()
            self._client.abort(self.key, None)

    def abort_sample(self, sample: int) -> None:
        """Frees one sample, whose text is complete before its tokens."""
        if sample in self._open:
            self._close(sample)
            self._tokens.pop(sample, None)
            self._client.abort(self.key, sample)

    def hold(self) -> None:
        self._is_held = True

    def release(self, until: float = math.inf) -> bool:
        """Hands out what was held; the listener may hold it again meanwhile. False: at `until` some was left, which is
        held."""
        self._is_held = False
        while self._held and not self._is_held:
            output = self._held.popleft()
            self._client.num_held -= len(output) + _PER_OUTPUT
            self._hand_out(_decode(output))
            if self._held and time.monotonic() > until:
                self._is_held = True
                return False
        if self._lost is not None and not self._is_held:
            self._fail(self._lost)
        return True

    def put(self, output: Output) -> None:
        tokens = self._tokens.get(output.sample)
        if tokens is None:  # aborted meanwhile
            return
        if output.token is not None:
            tokens.append(output.token)
            self.num_made += 1
        elif output.prompt_scores is not None:
            self._submit = messages.with_scored_prompt(self._submit)
        if output.finish is not None:
            del self._tokens[output.sample]
        if not self._is_held or output.prompt_scores is not None:  # which come first
            self._hand_out(output)
        elif self._client.num_held < MAX_HELD:
            self._held.append(_encode(output))
            self._client.num_held += len(self._held[-1]) + _PER_OUTPUT
        else:
            self.abort()
            self._listener.fail(TooSlow("more waits for clients that read slowly than can be kept"))

    @property
    def has_made(self) -> bool:
        """Whether a token has come from the replica where it is."""
        return self.num_made > self._num_before

    def service_of(self, output: Output) -> Service:
        """What its user is served by a token that was not put yet: with the first, the prompt too."""
        num_prompt = 0 if self.num_made else max(0, len(self._submit.prompt) - output.num_cached)
        return Service(self.attributes.user, self.attributes.share, num_prompt, 1)

    @property
    def attributes(self) -> Attributes:
        return self._submit.attributes

    @property
    def prompt(self) -> list[int]:
        return self._submit.prompt

    @property
    def known_tokens(self) -> list[int]:
        """The prompt, and what has come of the first open sample."""
        return [*self._submit.prompt, *next(iter(self._tokens.values()), ())]

    @property
    def is_strong(self) -> bool:
        """Whether it is suspected of ending engines, so that it must run by itself."""
        return self._suspicion is not None and self._suspicion.is_strong

    @property
    def may_move(self) -> bool:
        """Not where it is suspected and has made nothing since, nor where it is on its way."""
        is_suspected = self._suspicion is not None and (self._suspicion.is_strong or not self.has_made)
        return self.moving is None and not is_suspected

    def sent(self, replica: int, key: int) -> None:
        self.replica, self.key, self._num_before, self.moving = replica, key, self.num_made, None
        self.recalled_to = None

    def blame(self, is_suspect: bool, is_alone: bool, was_killed: bool) -> bool:
        """An engine died, perhaps busy with this. True when that proves it guilty: it has failed."""
        suspicion = self._suspicion = self._suspicion or (Suspicion() if is_suspect else None)
        if suspicion is None:
            return False
        suspicion.look({sample: len(tokens) for sample, tokens in self._tokens.items()})
        if is_suspect:
            suspicion.add(is_alone, was_killed)
        if not suspicion.is_proven:
            return False
        num = suspicion.num_alone
        error = _PROVEN.format("twice" if num == 2 else f"{num} times")
        for sample in list(self._tokens):
            self.put(Output(self.key, sample, None, "error", error=error))
        return True

    def resumed(self) -> Submit | None:
        """The message for the next engine, if anything is left to do."""
        if not self._tokens:
            return None
        message = messages.resumed(self._submit, self._tokens, time.monotonic() - self._asked)
        is_alone, self.is_judged = self.is_judged or self.is_strong, False
        num_alone = self._suspicion.num_alone if is_alone and self._suspicion is not None else None
        return replace_fields(message, key=self.key, num_alone=num_alone)

    def lose(self, error: Exception) -> None:
        self._lost = error
        self._tokens.clear()
        if not self._is_held:
            self._fail(error)

    def _hand_out(self, output: Output) -> None:
        if output.sample not in self._open:
            return
        if output.finish is not None:
            self._close(output.sample)
        try:
            self._listener.put(output)
        except Exception as error:
            self.abort()
            self._listener.fail(error)

    def _fail(self, error: Exception) -> None:
        if self._open:
            self._open.clear()
            self._drop_held()
            self._listener.fail(error)

    def _drop_held(self) -> None:
        self._client.num_held -= sum(map(len, self._held)) + _PER_OUTPUT * len(self._held)
        self._held.clear()

    def _close(self, sample: int) -> None:
        self._open.discard(sample)
        if not self._open:
            self._client.forget(self.key)
