"""Probes the server before the run: whether it is there, its API and the name of its model.

Always: a wrong address, API or model is refused here, before any load.
"""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.lab.bench.answer import READERS, StreamedAnswer, message_of
from chairlift.lab.bench.connection import Connections, reason_of
from chairlift.lab.bench.record import Ending, Unreachable
from chairlift.lab.bench.target import Address, Api, TargetServer

_TIMEOUT_S = 30.0
LLM_SERVING_MODEL = "llama2"


def find_peer(address: Address) -> str:
    """The first IP address of the host that accepts a connection."""
    try:
        with socket.create_connection((address.host, address.port), timeout=_TIMEOUT_S) as sock:
            return str(sock.getpeername()[0])
    except OSError as error:
        raise InvalidConfig(f"{address} cannot be reached: {reason_of(error)}; is the server up?") from error


def find_target(address: Address, api: Api | None, model: str | None, api_key: str, ignores_eos: bool) -> TargetServer:
    """Asks the server for the API and the model where they are not given."""
    if api is None:
        api = _find_api(address, api_key)
    if model is None:
        model = LLM_SERVING_MODEL if api is Api.LLM_SERVING else _find_model(address, api_key)
    return TargetServer(address, api, model, api_key, ignores_eos)


def _find_api(address: Address, api_key: str) -> Api:
    status, said = _get(address, "/v1/models", api_key)
    if status == 200:
        return Api.COMPLETIONS
    if _get(address, "/serving/get_bs", api_key)[0] == 200:
        return Api.LLM_SERVING
    if status in (401, 403):
        raise InvalidConfig(f"{address} wants an API key (HTTP {status}{_after(said)}); give --api-key")
    raise InvalidConfig(
        f"{address} has neither /v1/models (HTTP {status}{_after(said)}) nor /serving/get_bs; give --api and --model"
    )


def _find_model(address: Address, api_key: str) -> str:
    status, said = _get(address, "/v1/models", api_key)
    models = said.get("data") if isinstance(said, dict) and status == 200 else None
    if not isinstance(models, list) or not models or not isinstance(models[0], dict) or "id" not in models[0]:
        raise InvalidConfig(f"{address}/v1/models names no model (HTTP {status}{_after(said)}); give --model")
    return str(models[0]["id"])


def _get(address: Address, path: str, api_key: str) -> tuple[int, Any]:
    """The status and the first MiB of the body, decoded if it is JSON."""
    with answering(address, "GET", path, {"Authorization": f"Bearer {api_key}"} if api_key else {}) as answer:
        status, body = answer.status, answer.read(1 << 20)
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body.decode(errors="replace")


@contextmanager
def answering(
    address: Address,
    method: str,
    path: str,
    headers: Mapping[str, str],
    content: bytes | None = None,
    timeout_s: float = _TIMEOUT_S,
) -> Iterator[http.client.HTTPResponse]:
    """The answer, with its body still to be read; one that cannot be read raises InvalidConfig."""
    connect = http.client.HTTPSConnection if address.is_tls else http.client.HTTPConnection
    with closing(connect(address.host, address.port, timeout=timeout_s)) as connection:
        try:
            connection.request(method, address.prefix + path, content, headers)
            yield connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            reason = reason_of(error) if isinstance(error, OSError) else f"not HTTP: {error}"
            raise InvalidConfig(f"{address}{path} cannot be read: {reason}") from error


def _after(said: Any) -> str:
    text = message_of(said)
    return f": {text}" if text else ""


def check_answers(target: TargetServer, peer: str, name: str, trial: bytes, timeout_s: float) -> None:
    """Sends one request to this model or adapter and waits for its answer; raises InvalidConfig if it fails."""
    answer = StreamedAnswer()

    async def ask() -> None:
        connections = Connections(target.address, peer, READERS[target.api])
        async with asyncio.timeout(timeout_s):
            await connections.ask(trial, answer)
        connections.close()

    try:
        asyncio.run(ask())
    except TimeoutError:
        raise InvalidConfig(f"{target.url} did not answer one request to {name!r} within {timeout_s:g} s") from None
    except Unreachable as error:
        raise InvalidConfig(str(error)) from error
    ending, reason = answer.judge(0)
    if ending is Ending.FAILED:
        raise InvalidConfig(f"{target.url} does not answer a request of this workload to {name!r}: {reason}")
