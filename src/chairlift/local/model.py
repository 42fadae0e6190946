"""A model in this process: what `LLM` and `AsyncLLM` share. Prompts and chats become requests of its engine here.

Always: `close` frees the model's memory, and ends requests under way with an error; dropping the last reference closes.
"""

import gc
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypedDict

from chairlift.build import ResolvedModel, adapter_registry, assemble, find_model, load
from chairlift.config.options.foreign.vllm_keywords import no_attribute, own_options
from chairlift.config.options.resolve import resolve
from chairlift.config.options.values import did_you_mean
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidRequest
from chairlift.core.limits import output_room
from chairlift.core.params import PARAMS, SamplingParams
from chairlift.live.wire.shared_switchboard import Request, SharedSwitchboard
from chairlift.live.wire.switchboard import Switchboard
from chairlift.local.adapters import AskedAdapter, adapter_of
from chairlift.local.completing import MakeStream, Stream
from chairlift.local.embeddings import Embedding
from chairlift.local.tokenizer import NamedTokenizer
from chairlift.models.spec import SamplingDefaults
from chairlift.text.chat import render
from chairlift.text.detokenize import last_bytes
from chairlift.text.find import load_tokenizer
from chairlift.text.prompt_forms import TokenIds
from chairlift.text.responses.templates.model_format import ModelFormat, format_of
from chairlift.text.responses.tools.choice import read_allowed, read_choice
from chairlift.text.responses.turn import Asked, ChatTurn, ReadAs, turn_of
from chairlift.text.stream import TextStream
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.tokenizer import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Params = SamplingParams | Sequence[SamplingParams]
TokenizerCheck = Callable[[Tokenizer], None]  # raises `InvalidConfig`
_log = logging.getLogger(__name__)


class HasOptions(Protocol):
    options: dict[str, Any]  # as for `LLM`


class ChatOptions(TypedDict, total=False):
    """How a chat is answered, beyond its tools."""

    parallel_tool_calls: bool | None  # several calls in one answer; None: unless the choice names one
    enable_thinking: bool | None  # None: as the chat template has it
    thinking_budget: int | None  # tokens
    chat_template: str | None  # in place of the model's own
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool
    continue_final_message: bool


@dataclass(frozen=True, slots=True)
class Stats:
    """Requests and blocks of the engine at a moment."""

    num_running: int
    num_waiting: int
    num_blocks: int
    num_free: int  # blocks that no request holds, cached prefixes included
    num_cached: int  # free blocks that hold a cached prefix
    num_shared: int  # blocks that sharing saves: entries of the requests' tables less the blocks they hold
    max_shared: int  # the most it has saved so far


class LocalModel:
    def __init__(self, model: str | None = None, *, config: str | Path | None = None, **options: Any) -> None:
        """`options` are those of the command line, with underscores: max_running=64, dtype="float32", ..., or vLLM's.
        `config`: a YAML file of more."""
        settings = resolve(own_options({"model": model, **options}), None if config is None else Path(config))
        settings = replace(settings, takes_adapters=bool(options.get("enable_lora")))
        for warning in settings.warnings:
            _log.warning(warning)
        self._start(find_model(settings))

    @classmethod
    def from_engine_args(cls, engine_args: HasOptions) -> Self:
        return cls(**engine_args.options)

    @classmethod
    def from_settings(cls, settings: Settings, *checks: TokenizerCheck) -> Self:
        """`checks` may refuse the model, before its weights are read."""
        made = cls.__new__(cls)
        made._start(find_model(settings), *checks)
        return made

    def _start(self, model: ResolvedModel, *checks: TokenizerCheck) -> None:
        for warning in model.config.warnings:
            _log.warning(warning)
        if model.settings.replicas > 1:
            _log.warning(
                "replicas %d: here one engine computes; chairlift serve starts several", model.settings.replicas
            )
        self.tokenizer = load_tokenizer(model.source, model.settings.tokenizer, model.settings.chat_template)
        for check in checks:
            check(self.tokenizer)
        self._settings = model.settings
        self._format = format_of(self.tokenizer, model.settings.tool_format)
        self._other: tuple[Tokenizer, ModelFormat | None] | None = None
        self._adapters = adapter_registry(model)
        if self._adapters is not None:
            self._adapters.start(model.settings.lora)
        loaded = load(model)
        self.limits = loaded.limits
        self.memory = loaded.budget  # where a GPU's memory goes, in bytes; None on a CPU
        self.sampling_defaults: SamplingDefaults = model.config.sampling
        self._shown = f"{model.name!r}, device={loaded.device!r}, dtype={loaded.dtype!r}"
        self._eos_ids = model.config.eos_ids
        self._structured = StructuredChecker(self.tokenizer, model.config.vocab_size, model.config.eos_ids)
        self._shared = SharedSwitchboard(assemble(model, loaded))
        self._embedding: Embedding | None = None
        if model.config.embedding is not None:
            self._embedding = Embedding(self.tokenizer, model.config.embedding, loaded.limits, self._shared)
        # Loaded objects are permanent: scanning them for cycles takes 0.1 s, in which the device would run dry.
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Frees the model's memory; requests under way end with `EngineUnavailable`. A second time it does nothing."""
        if self._shared.is_closed:
            return
        self._shared.close()
        from chairlift.runner.memory.freed import release_memory

        release_memory()

    def __del__(self) -> None:
        if hasattr(self, "_shared") and not sys.is_finalizing():
            self.close()

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(type(self).__name__, name)

    def __repr__(self) -> str:
        state = "closed" if self._shared.is_closed else f"max_model_len={self.limits.max_model_len}"
        return f"{type(self).__name__}({self._shown}, {state})"

    @property
    def _switchboard(self) -> Switchboard:
        return self._shared.switchboard

    def get_default_sampling_params(self, **changes: Any) -> SamplingParams:
        """The model's suggested parameters, with changes."""
        return SamplingParams(**asdict(self.sampling_defaults) | changes)

    def get_tokenizer(self) -> NamedTokenizer:
        """The tokenizer under the names of transformers."""
        return NamedTokenizer(self.tokenizer)

    def chat_prompt(self, messages: Messages) -> list[int]:
        text = render(self.tokenizer, messages, escape_special_tokens=self._settings.escape_special_tokens)
        return self.tokenizer.encode(text, add_special=False)

    def reset_prefix_cache(self) -> bool:
        """Forgets cached prefixes, but for those of requests under way; whether there are none left."""
        return self._shared.do(lambda: self._switchboard.engine.scheduler.pool.forget())

    def stats(self) -> Stats:
        return self._shared.do(self._stats)

    def _stats(self) -> Stats:
        scheduler = self._switchboard.engine.scheduler
        pool = scheduler.pool
        return Stats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting) + len(scheduler.preempted),
            num_blocks=pool.num_blocks,
            num_free=pool.num_free,
            num_cached=pool.num_cached,
            num_shared=pool.num_shared,
            max_shared=pool.max_shared,
        )

    def _check_makes_text(self) -> None:
        if self._embedding is not None:
            raise InvalidRequest("model", "makes vectors or scores and no text; use embed or score")

    def _embedder(self) -> Embedding:
        if self._embedding is None:
            raise InvalidRequest("model", 'makes text; for vectors of it use LLM(..., task="embed")')
        return self._embedding

    def check_adapter(self, asked: AskedAdapter) -> None:
        """Raises `InvalidRequest` where there is no adapter of this name, and `InvalidConfig` where it is broken."""
        adapter_of(self._adapters, asked)

    def _params_for(self, params: Params | None, count: int) -> list[SamplingParams]:
        """Copies that are checked again: the caller may have changed theirs, or may do so later."""
        if params is None:
            params = self.get_default_sampling_params()
        if isinstance(params, SamplingParams):
            return [replace(params)] * count
        if not isinstance(params, list | tuple) or not all(isinstance(each, SamplingParams) for each in params):
            raise InvalidRequest(
                "sampling_params", "must be SamplingParams or a list of them, such as SamplingParams(top_k=5)"
            )
        if len(params) != count:
            raise InvalidRequest("sampling_params", f"{len(params)} sets of parameters for {count} prompts")
        return [replace(each) for each in params]

    def _request(self, prompt: str | TokenIds, params: SamplingParams) -> Request:
        self._check_makes_text()
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        params = params.banning(self._spelled)
        if params.structured_outputs is not None:
            self._structured.check(params.structured_outputs, params.max_tokens)
        return tokens, params, output_room(tokens, params, self.limits)

    def _spelled(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special=False)

    def _turn(
        self,
        chat: Messages,
        tools: Sequence[Mapping[str, Any]] | None,
        tool_choice: str | Mapping[str, Any] | None,
        options: ChatOptions,
    ) -> ChatTurn:
        self._check_makes_text()
        _check_known(options)
        asked = Asked(
            messages=chat,
            tools=tools or (),
            choice=read_choice(tool_choice, bool(tools)),
            allowed=read_allowed(tool_choice),
            is_parallel=options.get("parallel_tool_calls"),
            template_kwargs=options.get("chat_template_kwargs") or {},
            thinks=options.get("enable_thinking"),
            thinking_budget=options.get("thinking_budget"),
            add_generation_prompt=options.get("add_generation_prompt", True),
            continue_final_message=options.get("continue_final_message", False),
        )
        asked = asked.with_defaults(self._settings.default_chat_template_kwargs)
        tokenizer, format = self._templated(options.get("chat_template"))
        return turn_of(tokenizer, format, asked, self._settings.escape_special_tokens)

    def _templated(self, chat_template: str | None) -> tuple[Tokenizer, ModelFormat | None]:
        """The tokenizer with this template, and how answers are then written. The last one is kept."""
        if chat_template is None:
            return self.tokenizer, self._format
        if self._other is None or self._other[0].chat_template != chat_template:
            if not isinstance(chat_template, str):
                raise InvalidRequest("chat_template", f"must be a text, got {type(chat_template).__name__}")
            other = copy(self.tokenizer)
            other.chat_template, other.response_template = chat_template, None
            self._other = other, format_of(other, self._settings.tool_format)
        return self._other

    def _turn_request(self, turn: ChatTurn, params: SamplingParams) -> Request:
        prompt = self.tokenizer.encode(turn.prompt, add_special=False)
        params = params.banning(self._spelled)
        if params.structured_outputs is not None:
            self._structured.check(params.structured_outputs, params.max_tokens)
        params = turn.held(params, self._structured)
        return prompt, params, output_room(prompt, params, self.limits)

    def _stream_of(self, request: Request) -> Stream | None:
        return self._text_stream(request) if request[1].detokenize else None

    def _text_stream(self, request: Request) -> TextStream:
        tokens, params, _ = request
        before = last_bytes(self.tokenizer, tokens, params.skip_special_tokens)
        return TextStream(self.tokenizer, before, params, self._end_ids(params))

    def _turn_maker(self, turn: ChatTurn) -> MakeStream:
        return self._stream_of if turn.read_as is None else partial(self._turn_stream, turn.read_as)

    def _turn_stream(self, read_as: ReadAs, request: Request) -> Stream | None:
        tokens, params, _ = request
        if not params.detokenize:
            return None
        before = last_bytes(self.tokenizer, tokens, read_as.hides_special(params))
        return read_as.stream(self.tokenizer, before, params, self._end_ids(params))

    def _end_ids(self, params: SamplingParams) -> frozenset[int]:
        return frozenset() if params.ignore_eos else frozenset(self._eos_ids)


def _check_known(options: Iterable[str]) -> None:
    known = ChatOptions.__annotations__
    for name in options:
        if name in PARAMS:
            raise InvalidRequest(
                name, f"is a sampling parameter; give it in sampling_params: SamplingParams({name}=...)"
            )
        if name not in known:
            close = did_you_mean(name, known)
            raise InvalidRequest(name, f"is no option of a chat{close}; there are {', '.join(known)}")
