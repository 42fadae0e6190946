"""The Python interface: a model in this process, prompts in, texts out, in the order of the prompts.

Always: several threads may use one `LLM`; their requests share steps. A call leaves no request behind, however it ends.
"""

import gc
import logging
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from chairlift.build import ResolvedModel, adapter_registry, assemble, find_model, load
from chairlift.completions import Completing, Completion, MakeStream, Sample, Stream, raise_failure
from chairlift.config.model import SamplingDefaults
from chairlift.config.options.resolve import resolve
from chairlift.config.options.values import did_you_mean
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidRequest
from chairlift.core.limits import output_room
from chairlift.core.params import PARAMS, SamplingParams
from chairlift.embeddings import Embedding
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.shared_switchboard import Request, SharedSwitchboard
from chairlift.text.chat import render
from chairlift.text.embedding.vectors import Vectors
from chairlift.text.find import load_tokenizer
from chairlift.text.prompt_forms import TokenIds, read_chat, read_chats, read_prompt, read_prompts, read_texts
from chairlift.text.responses.reading.events import Content, Reasoning
from chairlift.text.responses.reading.gathered import Piece, Pieces, ToolCall
from chairlift.text.responses.templates.model_format import format_of
from chairlift.text.responses.tools.choice import read_allowed, read_choice
from chairlift.text.responses.turn import Asked, ChatTurn, ReadAs, turn_of
from chairlift.text.stream import TextStream
from chairlift.text.structured.checker import StructuredChecker

__all__ = ["LLM", "Completion", "Content", "Reasoning", "Sample", "SamplingParams", "Stats", "ToolCall"]

Prompt = str | Sequence[int] | Mapping[str, Any]  # a mapping: {"prompt": text} or {"prompt_token_ids": ids}
Messages = Sequence[Mapping[str, Any]]
_log = logging.getLogger(__name__)
T = TypeVar("T")


class ChatOptions(TypedDict, total=False):
    """How a chat is answered, beyond its tools."""

    parallel_tool_calls: bool | None  # several calls in one answer; None: unless the choice names one
    enable_thinking: bool | None  # None: as the chat template has it
    thinking_budget: int | None  # tokens
    chat_template_kwargs: Mapping[str, Any] | None


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


class LLM:
    def __init__(self, model: str | None = None, **options: Any) -> None:
        """`options` are those of the command line, with underscores: max_running=64, dtype="float32", ..."""
        self._start(find_model(resolve({"model": model, **options})))

    @classmethod
    def from_settings(cls, settings: Settings) -> "LLM":
        llm = cls.__new__(cls)
        llm._start(find_model(settings))
        return llm

    def _start(self, model: ResolvedModel) -> None:
        for warning in model.config.warnings:
            _log.warning(warning)
        if model.settings.replicas > 1:
            _log.warning(
                "replicas %d: here one engine computes; chairlift serve starts several", model.settings.replicas
            )
        self.tokenizer = load_tokenizer(model.source, model.settings.tokenizer)
        self._escapes_special_tokens = model.settings.escape_special_tokens
        self._format = format_of(self.tokenizer, model.settings.tool_format)
        self._adapters = adapter_registry(model)
        if self._adapters is not None:
            self._adapters.start(model.settings.lora)
        loaded = load(model)
        self._switchboard = assemble(model, loaded)
        self.limits = loaded.limits
        self.memory = loaded.budget  # where a GPU's memory goes, in bytes; None on a CPU
        self.sampling_defaults: SamplingDefaults = model.config.sampling
        self._eos_ids = model.config.eos_ids
        self._structured = StructuredChecker(self.tokenizer, model.config.vocab_size, model.config.eos_ids)
        self._shared = SharedSwitchboard(self._switchboard)
        self._embedding: Embedding | None = None
        if model.config.embedding is not None:
            self._embedding = Embedding(self.tokenizer, model.config.embedding, loaded.limits, self._shared)
        # Loaded objects are permanent: scanning them for cycles takes 0.1 s, in which the device would run dry.
        gc.collect()
        gc.freeze()

    def default_params(self, **changes: Any) -> SamplingParams:
        """The model's suggested parameters, with changes."""
        return SamplingParams(**asdict(self.sampling_defaults) | changes)

    def chat_prompt(self, messages: Messages) -> list[int]:
        text = render(self.tokenizer, messages, escape_special_tokens=self._escapes_special_tokens)
        return self.tokenizer.encode(text, add_special=False)

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

    def generate(
        self,
        prompts: str | Mapping[str, Any] | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_progress: bool | None = None,
        detokenize: bool = True,
        adapter: str | None = None,
    ) -> list[Completion]:
        """Completes all prompts in one batch; a prompt that cannot be served raises before any runs.

        Each completion has `params.n` samples: independent ones, the most probable of `best_of`, or the best of a beam
        search (`SamplingParams(beam_width=4, n=2)`), best first. They share blocks of common prefixes; see `stats`.
        Without `detokenize` there are tokens only, and no stop strings. `adapter`: the name of one of `lora`, or of a
        folder in `lora_dir`.
        """
        asked = read_prompts(prompts)
        each = self._params_for(params, len(asked))
        if not detokenize and any(p.stop for p in each):
            raise InvalidRequest("stop", "stop strings need the text: leave detokenize on")
        requests = [self._request(prompt, p) for prompt, p in zip(asked, each, strict=True)]
        makers = [self._text_stream if detokenize else _no_text] * len(requests)
        return self._completed(asked, requests, makers, use_progress, self._adapter(adapter))

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        *,
        use_progress: bool | None = None,
        adapter: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> list[Completion]:
        """Answers one conversation, or several in one batch, by the model's chat template. Tools, their choice, calls
        and results are as in OpenAI's chat API; answers have `text`, `reasoning` and `tool_calls`."""
        chats = read_chats(messages)
        each = self._params_for(params, len(chats))
        turns = [self._turn(chat, tools, tool_choice, options) for chat in chats]
        requests = [self._turn_request(turn, p) for turn, p in zip(turns, each, strict=True)]
        makers = [partial(self._turn_stream, turn.read_as) for turn in turns]
        prompts = [tokens for tokens, _, _ in requests]
        return self._completed(prompts, requests, makers, use_progress, self._adapter(adapter))

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, *, adapter: str | None = None
    ) -> Generator[str, None, None]:
        """The text in pieces. Closing the stream frees the request.

        Several streams may be read in turn; each step serves all of them.
        """
        request = self._request(read_prompt(prompt), self._params_of_one(params))
        found = self._adapter(adapter)
        return self._streamed(request, self._text_stream(request), lambda text: [text] if text else [], found)

    def stream_chat(
        self,
        messages: Messages,
        params: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        *,
        adapter: str | None = None,
        **options: Unpack[ChatOptions],
    ) -> Generator[Piece, None, None]:
        """As `chat` for one conversation, in pieces, in the order of the answer: `Reasoning` and `Content`, each with a
        `text`, and each `ToolCall` once it ends, cut where the answer was. Closing the stream frees the request."""
        params = self._params_of_one(params)
        turn = self._turn(read_chat(messages), tools, tool_choice, options)
        request = self._turn_request(turn, params)
        stream, found = self._turn_stream(turn.read_as, request), self._adapter(adapter)
        if isinstance(stream, TextStream):
            return self._streamed(request, stream, lambda text: [Content(text)] if text else [], found)
        pieces = Pieces(stream.new_call_id)
        return self._streamed(request, stream, lambda _: pieces.of(stream.events()), found)

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> Vectors:
        """Vectors [N, dimensions] in float32, by a model that makes them; of a single text one vector. `prompt_name`:
        one of the model's prompts to put before each text; `truncate_prompt_tokens`: to cut longer texts to, -1: to as
        many as fit."""
        listed = [texts] if isinstance(texts, str) else texts
        made = self._embedder().embed(read_texts(listed, "texts"), prompt_name, dimensions, truncate_prompt_tokens)
        return made[0] if isinstance(texts, str) else made

    def score(
        self,
        query: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
    ) -> list[float]:
        """How well each document answers the query, or its own query where there are several: by a model that scores
        pairs, or by the similarity of vectors."""
        second = read_texts([documents] if isinstance(documents, str) else documents, "documents")
        first = [query] * len(second) if isinstance(query, str) else read_texts(query, "query")
        if len(first) != len(second):
            raise InvalidRequest("query", f"{len(first)} queries for {len(second)} documents; give one, or as many")
        return self._embedder().score(first, second, truncate_prompt_tokens)

    def _check_makes_text(self) -> None:
        if self._embedding is not None:
            raise InvalidRequest("model", "makes vectors or scores and no text; use embed or score")

    def _embedder(self) -> Embedding:
        if self._embedding is None:
            raise InvalidRequest("model", 'makes text; for vectors of it use LLM(..., task="embed")')
        return self._embedding

    def _streamed(
        self, request: Request, stream: Stream, read: Callable[[str], Iterable[T]], adapter: Adapter | None
    ) -> Generator[T, None, None]:
        """`read` is given what each push to the stream returns."""
        with self._shared.asking([request], adapter) as reader:
            for output in self._shared.outputs(reader):
                raise_failure(output)
                if output.token is None:
                    continue
                yield from read(stream.push(output.token))
                if stream.stop is not None:
                    return
                if output.finish is not None:
                    break
            yield from read(stream.finish())

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
        )
        return turn_of(self.tokenizer, self._format, asked, self._escapes_special_tokens)

    def check_adapter(self, name: str | None) -> None:
        """Raises `InvalidRequest` where there is no adapter of this name, and `InvalidConfig` where it is broken."""
        self._adapter(name)

    def _adapter(self, name: str | None) -> Adapter | None:
        if name is None:
            return None
        found = None if self._adapters is None else self._adapters.find(name)
        if found is None:
            known = ", ".join(self._adapters.names()) if self._adapters is not None else "none: give lora or lora_dir"
            raise InvalidRequest("adapter", f"{name!r} is not known; there are {known}")
        return found

    def _params_of_one(self, params: SamplingParams | None) -> SamplingParams:
        (params,) = self._params_for(params, 1)
        if params.num_samples != 1:
            name = "n" if params.n != 1 else "best_of"
            raise InvalidRequest(name, f"a stream has one answer, not {params.num_samples}; use generate or chat")
        return params

    def _params_for(self, params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
        if params is None:
            params = self.default_params()
        if isinstance(params, SamplingParams):
            return [params] * count
        if not isinstance(params, list | tuple) or not all(isinstance(each, SamplingParams) for each in params):
            raise InvalidRequest("params", "must be SamplingParams or a list of them, such as SamplingParams(top_k=5)")
        if len(params) != count:
            raise InvalidRequest("params", f"{len(params)} sets of parameters for {count} prompts")
        return list(params)

    def _request(self, prompt: str | TokenIds, params: SamplingParams) -> Request:
        self._check_makes_text()
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if params.structured is not None:
            self._structured.check(params.structured, params.max_tokens)
        return tokens, params, output_room(tokens, params, self.limits)

    def _turn_request(self, turn: ChatTurn, params: SamplingParams) -> Request:
        prompt = self.tokenizer.encode(turn.prompt, add_special=False)
        if params.structured is not None:
            self._structured.check(params.structured, params.max_tokens)
        params = turn.held(params, self._structured)
        return prompt, params, output_room(prompt, params, self.limits)

    def _text_stream(self, request: Request) -> TextStream:
        tokens, params, _ = request
        return TextStream(self.tokenizer, tokens, params, self._end_ids(params))

    def _turn_stream(self, read_as: ReadAs | None, request: Request) -> Stream:
        tokens, params, _ = request
        if read_as is None:
            return self._text_stream(request)
        return read_as.stream(self.tokenizer, tokens, params, self._end_ids(params))

    def _end_ids(self, params: SamplingParams) -> frozenset[int]:
        return frozenset() if params.ignore_eos else frozenset(self._eos_ids)

    def _completed(
        self,
        prompts: Sequence[str | TokenIds],
        requests: list[Request],
        makers: Sequence[MakeStream],
        use_progress: bool | None,
        adapter: Adapter | None,
    ) -> list[Completion]:
        from tqdm import tqdm

        has_bar = sys.stderr.isatty() if use_progress is None else use_progress
        total = sum(params.num_samples for _, params, _ in requests)
        asking = self._shared.asking(requests, adapter)
        with asking as reader, tqdm(total=total, unit="answer", disable=not has_bar) as bar:
            completing = Completing(prompts, requests, reader.keys, makers, self._shared.end_sample)
            for output in self._shared.outputs(reader):
                if completing.take(output):
                    bar.update()
                if completing.is_over:
                    break
        return completing.completions()


def _check_known(options: Iterable[str]) -> None:
    known = ChatOptions.__annotations__
    for name in options:
        if name in PARAMS:
            raise InvalidRequest(name, f"is a sampling parameter; give it in params: SamplingParams({name}=...)")
        if name not in known:
            close = did_you_mean(name, known)
            raise InvalidRequest(name, f"is no option of a chat{close}; there are {', '.join(known)}")


def _no_text(_: Request) -> None:
    return None
