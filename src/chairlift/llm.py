"""The Python interface: a model in this process, prompts in, texts out, in the order of the prompts.

Always: several threads may use one `LLM`; their requests share steps. A call leaves no request behind, however it ends.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar, Unpack

from chairlift.core.attributes import ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.shared_switchboard import Request, RequestWith
from chairlift.local.adapters import AskedAdapter, adapter_of, adapters_of
from chairlift.local.completing import Completing, MakeStream, Stream, raise_failure
from chairlift.local.model import ChatOptions, LocalModel, Messages, Params
from chairlift.local.outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    CompletionOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
)
from chairlift.local.progress import UseTqdm, progress_bar
from chairlift.text.prompt_forms import TokenIds, read_chat, read_chats, read_prompt, read_prompts
from chairlift.text.responses.reading.events import Content
from chairlift.text.responses.reading.gathered import Piece, Pieces
from chairlift.text.stream import TextStream

Prompt = str | Sequence[int] | Mapping[str, Any]  # a mapping: {"prompt": text} or {"prompt_token_ids": ids}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """By vLLM's names, for `LLM.beam_search`."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0  # 0 and 1 alone: a search draws nothing
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def sampling(self) -> SamplingParams:
        if self.temperature not in (0.0, 1.0):
            raise InvalidRequest("temperature", "a beam search draws nothing; leave it out")
        return SamplingParams(
            n=self.beam_width,
            beam_width=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            length_penalty=self.length_penalty,
            include_stop_str_in_output=self.include_stop_str_in_output,
        )


class LLM(LocalModel):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        prompts: str | Mapping[str, Any] | Sequence[Prompt] | None = None,
        sampling_params: Params | None = None,
        use_tqdm: UseTqdm = None,
        lora_request: AskedAdapter | Sequence[AskedAdapter] = None,
        *,
        priority: Sequence[int] | None = None,
        prompt_token_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
    ) -> list[RequestOutput]:
        """Completes all prompts in one batch; a prompt that cannot be served raises before any runs.

        Each has `sampling_params.n` outputs: independent ones, the most probable of `best_of`, or the best of a beam
        search (`SamplingParams(beam_width=4, n=2)`), best first. They share blocks of common prefixes; see `stats`.
        `use_tqdm`: a progress bar; None: in terminals and notebooks. `lora_request`: a `LoRARequest`, or the name
        of an adapter that is known, for all prompts; or a list of one for each. `priority`: of each prompt, the
        smallest first, with LLM(policy="priority"). `prompt_token_ids`: the prompts, in vLLM's older form.
        """
        asked = read_prompts(_one_of(prompts, prompt_token_ids))
        each = self._params_for(sampling_params, len(asked))
        requests = [self._request(prompt, params) for prompt, params in zip(asked, each, strict=True)]
        makers = [self._stream_of] * len(requests)
        adapters = adapters_of(self._adapters, lora_request, len(requests))
        return self._completed(asked, requests, makers, use_tqdm, adapters, priority)

    def beam_search(
        self, prompts: str | Mapping[str, Any] | Sequence[Prompt], params: "BeamSearchParams", use_tqdm: UseTqdm = None
    ) -> list[BeamSearchOutput]:
        """vLLM's form of `generate` with a `beam_width`: texts and tokens begin with the prompt."""
        found = self.generate(prompts, params.sampling(), use_tqdm)
        return [BeamSearchOutput([self._sequence(each, beam) for beam in each.outputs]) for each in found]

    def _sequence(self, output: RequestOutput, beam: CompletionOutput) -> BeamSearchSequence:
        tokens = output.prompt_token_ids + beam.token_ids
        before = self.tokenizer.decode(output.prompt_token_ids) if output.prompt is None else output.prompt
        return BeamSearchSequence(before + beam.text, tokens, beam.finish_reason, beam.stop_reason)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params | None = None,
        use_tqdm: UseTqdm = None,
        lora_request: AskedAdapter | Sequence[AskedAdapter] = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        **options: Unpack[ChatOptions],
    ) -> list[RequestOutput]:
        """Answers one conversation, or several in one batch, by the model's chat template. Tools, their choice, calls
        and results are as in OpenAI's chat API; answers have `text`, `reasoning` and `tool_calls`."""
        chats = read_chats(messages)
        each = self._params_for(sampling_params, len(chats))
        turns = [self._turn(chat, tools, tool_choice, options) for chat in chats]
        requests = [self._turn_request(turn, params) for turn, params in zip(turns, each, strict=True)]
        makers = [self._turn_maker(turn) for turn in turns]
        prompts = [tokens for tokens, _, _ in requests]
        adapters = adapters_of(self._adapters, lora_request, len(requests))
        return self._completed(prompts, requests, makers, use_tqdm, adapters)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, lora_request: AskedAdapter = None
    ) -> Generator[str, None, None]:
        """The text in pieces. Closing the stream frees the request.

        Several streams may be read in turn; each step serves all of them.
        """
        request = self._request(read_prompt(prompt), self._params_of_one(sampling_params))
        adapter = adapter_of(self._adapters, lora_request)
        return self._streamed(request, self._text_stream(request), lambda text: [text] if text else [], adapter)

    def stream_chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        *,
        lora_request: AskedAdapter = None,
        **options: Unpack[ChatOptions],
    ) -> Generator[Piece, None, None]:
        """As `chat` for one conversation, in pieces, in the order of the answer: `Reasoning` and `Content`, each with a
        `text`, and each `ToolCall` once it ends, cut where the answer was. Closing the stream frees the request."""
        params = self._params_of_one(sampling_params)
        turn = self._turn(read_chat(messages), tools, tool_choice, options)
        request = self._turn_request(turn, params)
        stream, adapter = self._turn_maker(turn)(request), adapter_of(self._adapters, lora_request)
        assert stream is not None  # `_params_of_one` has seen to it
        if isinstance(stream, TextStream):
            return self._streamed(request, stream, lambda text: [Content(text)] if text else [], adapter)
        pieces = Pieces(stream.new_call_id)
        return self._streamed(request, stream, lambda _: pieces.of(stream.events()), adapter)

    def embed(
        self,
        prompts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Vectors, by a model that makes them; `numpy.asarray` of the list is float32 [N, dimensions]. `prompt_name`:
        one of the model's prompts to put before each text; `truncate_prompt_tokens`: to cut longer texts to, -1: to as
        many as fit."""
        return self._embedder().embed(prompts, prompt_name, dimensions, truncate_prompt_tokens)

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        truncate_prompt_tokens: int | None = None,
    ) -> list[ScoringRequestOutput]:
        """How well each document answers the query, or its own query where there are several: by a model that scores
        pairs, or by the similarity of vectors."""
        return self._embedder().score(queries, documents, truncate_prompt_tokens)

    def _params_of_one(self, given: SamplingParams | None) -> SamplingParams:
        (params,) = self._params_for(given, 1)
        if params.num_samples != 1:
            name = "n" if params.n != 1 else "best_of"
            raise InvalidRequest(name, f"a stream has one answer, not {params.num_samples}; use generate or chat")
        if not params.detokenize:
            raise InvalidRequest("detokenize", "a stream is text; for tokens alone use generate or AsyncLLM")
        return params

    def _streamed(
        self, request: Request, stream: Stream, read: Callable[[str], Iterable[T]], adapter: Adapter | None
    ) -> Generator[T, None, None]:
        """`read` is given what each push to the stream returns."""
        with self._shared.asking([request], [adapter]) as reader:
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

    def _completed(
        self,
        prompts: Sequence[str | TokenIds],
        requests: list[Request],
        makers: Sequence[MakeStream],
        use_tqdm: UseTqdm,
        adapters: list[Adapter | None],
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        total = sum(params.num_samples for _, params, _ in requests)
        asking = self._shared.asking(_ranked(requests, priority), adapters)
        with asking as reader, progress_bar(use_tqdm, total) as bar:
            completing = Completing(prompts, requests, reader.keys, makers, self.tokenizer, self._shared.end_sample)
            for output in self._shared.outputs(reader):
                if completing.take(output):
                    bar.update()
                if completing.is_over:
                    break
        return completing.outputs()


def _one_of(prompts: Any, prompt_token_ids: Any) -> Any:
    if (prompts is None) == (prompt_token_ids is None):
        raise InvalidRequest("prompts", "give prompts, or prompt_token_ids")
    if prompts is not None:
        return prompts
    is_one = isinstance(prompt_token_ids, Sequence) and prompt_token_ids and isinstance(prompt_token_ids[0], int)
    return [prompt_token_ids] if is_one else prompt_token_ids


def _ranked(requests: list[Request], priority: Sequence[int] | None) -> list[Request] | list[RequestWith]:
    if priority is None:
        return requests
    if len(priority) != len(requests):
        raise InvalidRequest("priority", f"{len(priority)} ranks for {len(requests)} prompts")
    read = ATTRIBUTES["priority"].read
    return [(*request, Attributes(priority=read(rank))) for request, rank in zip(requests, priority, strict=True)]
