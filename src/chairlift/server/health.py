"""The health routes: whether the process is alive, accepts work, and makes tokens.

Always: at most one check generates a token at a time, and none when a token was made, or a check done, in the last
seconds.
"""

import asyncio
import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from chairlift.core.errors import ChairliftError
from chairlift.core.params import SamplingParams
from chairlift.live.shared_memory.counts import Count
from chairlift.live.wire.messages import Output
from chairlift.server.context import ServerContext, context_of

_FRESH_S = 5.0
_TIME_LIMIT_S = 10.0


class Health(msgspec.Struct, frozen=True):
    status: str  # "ok", or why not


OK = Health("ok")


async def health(http: Request) -> Response:
    why_not = context_of(http).why_not_ready
    return Response() if why_not is None else _response(Health(why_not))


async def live(http: Request) -> Response:
    return _response(OK)


async def ready(http: Request) -> Response:
    context = context_of(http)
    why_not = "the server is stopping" if context.load.is_draining else context.why_not_ready
    return _response(OK if why_not is None else Health(why_not))


async def generate(http: Request) -> Response:
    check: TokenCheck = http.app.state.token_check
    return _response(await check())


def _response(found: Health) -> Response:
    return Response(msgspec.json.encode(found), 200 if found is OK else 503, media_type="application/json")


class TokenCheck:
    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._found = OK
        self._found_at = -_FRESH_S
        self._in_flight: asyncio.Future[Health] | None = None

    async def __call__(self) -> Health:
        now = time.monotonic()
        if self._context.load.has_heard or now - self._context.load.counts.latest(Count.HEARD_NS) / 1e9 < _FRESH_S:
            return OK
        if now - self._found_at < _FRESH_S:
            return self._found
        if self._in_flight is None or self._in_flight.done():
            self._in_flight = asyncio.ensure_future(self._make_token())
        return await asyncio.shield(self._in_flight)

    async def _make_token(self) -> Health:
        listener = _FirstToken()
        generation = None
        try:
            prompt = self._context.tokenizer.encode("1", True)
            params = SamplingParams(max_tokens=1, temperature=0.0)
            generation = self._context.client.submit(prompt, params, 1, listener)
            self._found = await asyncio.wait_for(listener.outcome, _TIME_LIMIT_S)
        except TimeoutError:
            self._found = Health(f"the engine made no token within {_TIME_LIMIT_S:g} s")
        except ChairliftError as error:
            self._found = Health(str(error))
        finally:
            if generation is not None:
                generation.abort()
            self._found_at = time.monotonic()
        return self._found


class _FirstToken:
    def __init__(self) -> None:
        self.outcome: asyncio.Future[Health] = asyncio.get_running_loop().create_future()

    def put(self, output: Output) -> None:
        if not self.outcome.done():
            self.outcome.set_result(OK if output.token is not None else Health(output.error or "no token was made"))

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
