"""The soak's traffic: clients of every kind that ask, wait, and ask again, and what became of their requests.

Always: a request ends in one outcome, counted by its kind, and only the outcomes in `FINE` are what it should come to.
While the traffic rests nothing is asked and no connection is open.
"""

import asyncio
import json
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import httpx

FINE = ("200", "left", "refused")
_WORDS = ("the", "lift", "goes", "up", "a", "hill", "and", "down", "where", "snow", "lies", "deep", "still", "é", "雪")
_PREFIXES = tuple(" ".join(random.Random(i).choices(_WORDS, k=150)) for i in range(4))
_BAD: tuple[tuple[str, bytes], ...] = (
    ("/v1/completions", b"{"),
    ("/v1/completions", b'{"prompt": "a", "max_tokens": -1}'),
    ("/v1/completions", b'{"prompt": [1, 2, 99999999]}'),
    ("/v1/completions", b'{"prompt": "%b"}' % (b"far too long " * 2000)),
    ("/v1/completions", b'{"prompt": "a", "model": "nobody"}'),
    ("/v1/chat/completions", b'{"messages": "hello"}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "a"}], "temperature": "hot"}'),
    ("/v1/chat/completions", b"\xff\xfe"),
    ("/models/any/generate", b'{"inputs": ["a"]}'),
    ("/models/any", b"[" * 5000),
    ("/nowhere", b"{}"),
)
_KINDS = {"completion": 4, "chat": 4, "llm-serving": 2, "tokenize": 1, "bad": 1, "metrics": 1, "page": 1}
_PAUSE_S = (0.02, 20.0)


class Traffic:
    def __init__(self, url: str, model: str, num_clients: int, seed: int) -> None:
        self._url, self._model = url, model
        self._num_clients, self._rng = num_clients, random.Random(seed)
        self._clients: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()
        self.pause_s = 1.0  # that a client waits between two requests, on average
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.surprises: list[str] = []

    def pace(self, busy: float, wanted: float) -> None:
        """Clients wait longer when the engine was busier than it should be."""
        factor = min(2.0, max(0.5, busy / wanted))
        self.pause_s = min(_PAUSE_S[1], max(_PAUSE_S[0], self.pause_s * factor))

    def begin(self) -> None:
        self._is_over.clear()
        self._clients = [asyncio.ensure_future(self._client()) for _ in range(self._num_clients)]

    async def rest(self) -> None:
        """Returns when all answers are there and all connections closed."""
        self._is_over.set()
        await asyncio.gather(*self._clients)

    async def _client(self) -> None:
        rng = random.Random(self._rng.random())
        while not self._is_over.is_set():
            async with httpx.AsyncClient(base_url=self._url, timeout=120) as http:
                for _ in range(rng.randint(1, 10)):
                    if self._is_over.is_set():
                        break
                    await self._ask(http, rng)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._is_over.wait(), rng.expovariate(1 / self.pause_s))

    async def _ask(self, http: httpx.AsyncClient, rng: random.Random) -> None:
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        method, path, body = self._request(kind, rng)
        # Some leave before the answer is whole; a page stays open until it is left.
        leaves_after_s = rng.random() * (8.0 if kind == "page" else 1.0)
        leaves = kind == "page" or rng.random() < 0.12
        outcome, last = "", b""
        try:
            async with asyncio.timeout(leaves_after_s if leaves else None):
                async with http.stream(method, path, content=body) as answer:
                    outcome = str(answer.status_code)
                    async for piece in answer.aiter_raw():
                        last = (last + piece)[-4096:]
        except TimeoutError:
            outcome = "left"
        except httpx.HTTPError as error:
            outcome, last = "broken", repr(error).encode()
        if outcome == "200" and b'data: {"error"' in last:
            outcome = "error in the stream"
        if kind == "bad" and outcome.isdecimal():
            outcome = "refused" if outcome in ("400", "404", "422") else f"{outcome} for a bad request"
        self.outcomes[kind, outcome] += 1
        if outcome not in FINE:
            self.surprises.append(f"{path} {body[:200]!r}: {outcome} {last[-300:]!r}")

    def _request(self, kind: str, rng: random.Random) -> tuple[str, str, bytes]:
        if kind == "metrics":
            return "GET", rng.choice(("/metrics", "/health/generate", "/v1/models", "/openapi.json")), b""
        if kind == "page":
            return "GET", "/live", b""
        if kind == "bad":
            return "POST", *rng.choice(_BAD)
        if kind == "tokenize":
            return "POST", "/tokenize", _json({"prompt": _text(rng)})
        if kind == "llm-serving":
            end = rng.choice(("", "/generate", "/generate_stream"))
            parameters = {
                "max_new_tokens": rng.randint(1, 48),
                "do_sample": rng.random() < 0.5,
                "seed": rng.randint(1, 9),
            }
            body = {"inputs": _text(rng), "parameters": parameters, "stream": rng.random() < 0.5}
            return "POST", f"/models/{self._model}{end}", _json(body)
        body = _sampling(rng)
        if kind == "chat":
            messages = [{"role": "user", "content": _text(rng)}]
            if rng.random() < 0.3:
                messages = [{"role": "system", "content": rng.choice(_PREFIXES)}, *messages]
            extra = {"logprobs": True, "top_logprobs": rng.randint(0, 5)} if rng.random() < 0.2 else {}
            return "POST", "/v1/chat/completions", _json(body | extra | {"messages": messages})
        extra = {"logprobs": rng.randint(0, 5)} if rng.random() < 0.2 else {}
        if rng.random() < 0.05:
            body, extra = {"max_tokens": rng.randint(1, 16), "use_beam_search": True, "best_of": 3, "n": 2}, {}
        prompt = [_text(rng), _text(rng)] if rng.random() < 0.1 else _text(rng)
        return "POST", "/v1/completions", _json(body | extra | {"prompt": prompt})


def _sampling(rng: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": rng.randint(1, 64), "stream": rng.random() < 0.6}
    if rng.random() < 0.5:
        body |= {"temperature": rng.random() * 1.5, "seed": rng.randint(0, 2**40), "top_p": 0.9, "top_k": 40}
    if rng.random() < 0.2:
        body |= {"n": rng.randint(2, 4)}
    if rng.random() < 0.3:
        body |= {"stop": ["\n\n", rng.choice(_WORDS)]}
    if rng.random() < 0.3:
        body |= {"ignore_eos": True}
    if rng.random() < 0.1:
        body |= {"repetition_penalty": 1.2, "presence_penalty": 0.5, "logit_bias": {"5": -10}}
    return body


def _text(rng: random.Random) -> str:
    """Short or long; a good part begin alike."""
    own = " ".join(rng.choices(_WORDS, k=rng.choice((1, 5, 20, 20, 100))))
    return f"{rng.choice(_PREFIXES)} {own}" if rng.random() < 0.4 else own


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
