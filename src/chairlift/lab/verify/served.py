"""A running server: the same requests over HTTP, one after another or all at once, with log-probabilities.

Works with any server of OpenAI's completions that takes prompts as token ids and returns ids.
"""

import json
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.lab.verify.cases import Case
from chairlift.lab.verify.output import Outputs, SampleKey, SampleOutput
from chairlift.telemetry import logit_files

_TOP = 5  # most probable tokens, compared too
_TIMEOUT_S = 600.0
_SENT = ("max_tokens", "temperature", "top_p", "top_k", "seed", "n", "ignore_eos")


class Served:
    def __init__(self, url: str, adapters: Sequence[str] = ()) -> None:
        """Asks the server for its model; raises if there is no answer, or no such adapter."""
        self.url = url.rstrip("/").removesuffix("/v1")
        cards = self._ask("/v1/models").get("data") or [{}]
        self.model = str(cards[0].get("id", ""))
        self.max_model_len = int(cards[0].get("max_model_len") or 0)
        self.version = self._version()
        self.names = [str(card.get("id", "")) for card in cards]
        for name in adapters:
            if name not in self.names:
                shown = ", ".join(self.names[1:]) or "none"
                raise InvalidConfig(f"--adapters: {self.url} has no adapter {name!r}; it has {shown}")

    def _version(self) -> str:
        """Of chairlift; empty for other servers."""
        try:
            name, _, version = str(self._ask("/").get("server", "")).partition(" ")
        except ChairliftError:
            return ""
        return version if name == "chairlift" else ""

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._ask("/tokenize", {"model": self.model, "prompt": text})["tokens"]]

    def alone(self, cases: Sequence[Case]) -> Outputs:
        """One request at a time."""
        return {key: output for each in enumerate(cases) for key, output in self._complete(*each).items()}

    def together(self, cases: Sequence[Case], rng: random.Random | None = None) -> Outputs:
        """All requests at once, in random order if `rng` is given."""
        order = list(enumerate(cases))
        if rng is not None:
            rng.shuffle(order)
        with ThreadPoolExecutor(len(order)) as pool:
            found = pool.map(lambda each: self._complete(*each), order)
            return {key: output for outputs in found for key, output in outputs.items()}

    def _complete(self, index: int, case: Case) -> Outputs:
        body = {name: getattr(case.params, name) for name in _SENT}
        body |= {
            "model": case.adapter or self.model,
            "prompt": list(case.prompt),
            "logprobs": _TOP,
            "return_token_ids": True,
        }
        choices = self._ask("/v1/completions", body)["choices"]
        return {SampleKey(index, int(c["index"])): self._answer(case.prompt, c) for c in choices}

    def _answer(self, prompt: Sequence[int], choice: dict[str, Any]) -> SampleOutput:
        tokens, scores = choice.get("token_ids"), choice.get("logprobs")
        if not isinstance(tokens, list) or not isinstance(scores, dict):
            raise ChairliftError(f"{self.url}: gives no token_ids or no logprobs with its completions")
        answer = SampleOutput(len(prompt), tokens, is_served=True)
        for i, (own, top) in enumerate(zip(scores["token_logprobs"], scores["top_logprobs"], strict=True)):
            answer.rows[len(prompt) - 1 + i] = np.array([own, *sorted(top.values(), reverse=True)], np.float64)
        return answer

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ChairliftError(f"{self.url}{path}: {error.code}: {_reason(error)}") from error
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            raise ChairliftError(f"--url {self.url}: no server answers there ({why})") from error
        if not isinstance(found, dict):
            raise ChairliftError(f"{self.url}{path}: not an answer that can be read")
        return found


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        found = json.load(error)
        return str(found.get("error", {}).get("message") or found)
    except (ValueError, AttributeError, OSError):
        return str(error.reason)


_PATIENCE_S = 10.0  # without another row that is wanted
_POLL_S = 0.05


class ServedRows:
    """Those that a server writes (`serve --save-logits`), given to outputs by all tokens before them."""

    def __init__(self, folder: Path) -> None:
        """Rows that are there already are of other requests."""
        if not (folder / logit_files.FOLDER).is_dir():
            raise InvalidConfig(f"--logits {folder}: no server writes there; start it with --save-logits {folder}")
        self.folder = folder
        self._before = frozenset(logit_files.read_index(folder))
        self.num_expected = self.num_missing = 0

    def give(self, cases: Sequence[Case], outputs: Outputs) -> None:
        """Waits for the rows of these outputs, as long as more of them come. Those that never do are counted."""
        wanted = list(_wanted(cases, outputs))
        files = self._wait(Counter(prefix for prefix, _, _ in wanted))
        for prefix, key, position in wanted:
            self.num_expected += 1
            if files.get(prefix):
                outputs[key].rows[position] = logit_files.read(self.folder / logit_files.FOLDER / files[prefix].pop(0))
            else:
                self.num_missing += 1

    def _wait(self, wanted: Counter[str]) -> dict[str, list[str]]:
        """New files by prefix."""
        num_missing, deadline = -1, 0.0
        while True:
            new = {n: p for n, p in logit_files.read_index(self.folder).items() if n not in self._before}
            missing = (wanted - Counter(new.values())).total()  # rows of other requests are no sign of these
            if missing != num_missing:
                num_missing, deadline = missing, time.monotonic() + _PATIENCE_S
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        files: dict[str, list[str]] = {}
        for name, prefix in new.items():
            files.setdefault(prefix, []).append(name)
        return files


def _wanted(cases: Sequence[Case], outputs: Outputs) -> Iterator[tuple[str, SampleKey, int]]:
    for key, output in sorted(outputs.items()):
        tokens = [*cases[key.case].prompt, *output.tokens]
        for position in range(output.num_prompt - 1, len(tokens) - 1):
            if position % logit_files.EVERY == 0:
                yield logit_files.prefix_digest(tokens[: position + 1]), key, position
