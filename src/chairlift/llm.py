"""The Python interface: a model in this process, prompts in, texts out, in the order of the prompts.

Always: several threads may use one `LLM`; their requests share steps. A call leaves no request behind, however it ends.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.registry import Adapter
from chairlift.live.wire.shared_switchboard import Request
from chairlift.local.adapters import AskedAdapter, adapter_of, adapters_of
from chairlift.local.completing import Completing, MakeStream, Stream, raise_failure
from chairlift.local.model import ChatOptions, LocalModel, Messages, Params
from chairlift.local.outputs import EmbeddingRequestOutput, RequestOutput, ScoringRequestOutput
from chairlift.local.progress import UseTqdm, progress_bar
from chairlift.text.prompt_forms import TokenIds, read_chat, read_chats, read_prompt, read_prompts
from chairlift.text.responses.reading.events import Content
from chairlift.text.responses.reading.gathered import Piece, Pieces
from chairlift.text.stream import TextStream

Prompt = str | Sequence[int] | Mapping[str, Any]  # a mapping: {"prompt": text} or {"prompt_token_ids": ids}
T = TypeVar("T")


class LLM(LocalModel):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        prompts: str | Mapping[str, Any] | Sequence[Prompt],
        sampling_params: Params | None = None,
        use_tqdm: UseTqdm = None,
        lora_request: AskedAdapter | Sequence[AskedAdapter] = None,
    ) -> list[RequestOutput]:
        """Completes all prompts in one batch; a prompt that cannot be served raises before any runs.

        Each has `sampling_params.n` outputs: independent ones, the most probable of `best_of`, or the best of a beam
        search (`SamplingParams(beam_width=4, n=2)`), best first. They share blocks of common prefixes; see `stats`.
        `use_tqdm`: a progress bar; None: in terminals and notebooks. `lora_request`: a `LoRARequest`, or the name
        of an adapter that is known, for all prompts; or a list of one for each.
        """
        asked = read_prompts(prompts)
        each = self._params_for(sampling_params, len(asked))
        requests = [self._request(prompt, params) for prompt, params in zip(asked, each, strict=True)]
        makers = [self._stream_of] * len(requests)
        adapters = adapters_of(self._adapters, lora_request, len(requests))
        return self._completed(asked, requests, makers, use_tqdm, adapters)

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
    ) -> list[RequestOutput]:
        total = sum(params.num_samples for _, params, _ in requests)
        asking = self._shared.asking(requests, adapters)
        with asking as reader, progress_bar(use_tqdm, total) as bar:
            completing = Completing(prompts, requests, reader.keys, makers, self.tokenizer, self._shared.end_sample)
            for output in self._shared.outputs(reader):
                if completing.take(output):
                    bar.update()
                if completing.is_over:
                    break
        return completing.outputs()
