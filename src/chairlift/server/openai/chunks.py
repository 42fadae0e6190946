"""The chunks of an OpenAI stream as bytes.

Always: one chunk per token, except that a token with held-back text joins the next chunk. A choice sends nothing before
its first token; its role, or its echoed prompt, comes in that chunk.

    data: {"id":…,"choices":[{"index":0,"delta":{"content":  "text"  },"logprobs":null,"finish_reason":null}]}
    `----------------- head, made once ------------------'          `------------ tail, made once ---------'
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from chairlift.core.score import TokenScore
from chairlift.server.answer import Answer, Delta
from chairlift.server.errors import describe
from chairlift.server.openai.logprobs import ShownPrompt
from chairlift.server.openai.reply import Choice, Reply

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode
# The logprobs field of the tokens in a chunk.
Scores = Callable[[Sequence[int], Sequence[TokenScore | None]], msgspec.Struct]


class Envelope:
    """What stands around the text of a choice's chunks."""

    def __init__(self, reply: Reply, answer: Answer, index: int, scores: Scores | None) -> None:
        self._reply = reply
        self._answer = answer
        self._scores = scores
        self._has_ids = bool(reply.request.return_token_ids)
        options = reply.request.stream_options
        has_usage = options is not None and bool(options.include_usage)
        self._has_usage = options is not None and has_usage and bool(options.continuous_usage_stats)
        self._usage = b',"usage":null' if has_usage else b""
        self._is_first = True
        self.head = _lead(reply) + b'"choices":[{"index":%d,' % index
        self.tail = b',"logprobs":null,"finish_reason":null,"stop_reason":null}]%s}\n\n' % self._usage
        self.is_plain = scores is None and not self._has_ids and not self._has_usage  # head and tail are all

    def chunk(self, body: bytes, news: Choice) -> bytes:
        """`body`: the field with the text."""
        scores = b"null" if self._scores is None else _encode(self._scores(news.tokens, news.scores))
        return b"".join((self.head, body, b',"logprobs":', scores, self._rest(news)))

    def pieces(self, body: bytes, news: Choice, scores: Iterator[bytes]) -> Iterator[bytes]:
        """A chunk with these scores."""
        return chain((self.head, body, b',"logprobs":'), scores, (self._rest(news),))

    def _rest(self, news: Choice) -> bytes:
        parts = [b',"finish_reason":', _encode(news.finish), b',"stop_reason":', _encode(news.stop)]
        prompt_ids = b""
        if self._has_ids:
            if self._is_first:
                prompt_ids = b',"prompt_token_ids":' + self._reply.prompt_ids(self._answer)
            parts += [b',"token_ids":', _encode(news.tokens), b"" if self._reply.is_chat else prompt_ids]
        parts += [b"}]", prompt_ids if self._reply.is_chat else b""]
        parts.append(b',"usage":' + _encode(self._reply.usage()) if self._has_usage else self._usage)
        parts.append(b"}\n\n")
        self._is_first = False
        return b"".join(parts)


class Chunks(Protocol):
    """The chunks of one choice."""

    def add(self, delta: Delta) -> bytes | Iterator[bytes]:
        """The next ones, or nothing while the text is held back; a large one in pieces."""
        ...


class Frame:
    """Chunks of text as it comes."""

    def __init__(
        self,
        reply: Reply,
        answer: Answer,
        index: int,
        scores: Scores | None,
        echo: ShownPrompt | None = None,
        first: Callable[[Sequence[int], Sequence[TokenScore | None]], Iterator[bytes]] | None = None,
    ) -> None:
        """`echo`: the prompt, whose text goes before the answer's. `first`: the scores of the first chunk, where those
        of the prompt are among them."""
        self._reply, self._first = reply, first
        self._pending = Choice()
        self._is_first = True
        self._echo = echo
        self._envelope = envelope = Envelope(reply, answer, index, scores)
        self._key, self._close = (b'"delta":{"content":', b"}") if reply.is_chat else (b'"text":', b"")
        self._first_key = b'"delta":{"role":"assistant","content":' if reply.is_chat else self._key
        self._head, self._tail = envelope.head + self._key, self._close + envelope.tail

    def add(self, delta: Delta) -> bytes | Iterator[bytes]:
        is_held_back = not delta.text and delta.finish is None and delta.token not in self._reply.silent_ids
        if self._envelope.is_plain and not self._is_first and delta.finish is None:
            return b"" if is_held_back else self._head + _encode(delta.text) + self._tail
        if self._reply.hides_output:  # the one chunk of a choice that is only its echoed prompt
            self._pending = Choice(finish="length")
            return self._flush()
        self._pending.add(delta)
        return b"" if is_held_back else self._flush()

    def _flush(self) -> bytes | Iterator[bytes]:
        news, self._pending = self._pending, Choice()
        text, key = "".join(news.text), self._key
        if self._is_first:
            key = self._first_key
            if self._echo is not None:
                text = self._echo.text + text
        self._is_first = False
        body, (first, self._first) = key + _encode(text) + self._close, (self._first, None)
        if first is not None:
            return self._envelope.pieces(body, news, first(news.tokens, news.scores))
        return self._envelope.chunk(body, news)


class ChunkEncoder:
    """The chunks of all choices as their tokens come, and the end of the stream."""

    def __init__(self, reply: Reply, frame: Callable[[Reply, int], Chunks]) -> None:
        """`frame` makes the chunks of one choice."""
        self._reply, self._frame = reply, frame
        self._frames: list[Chunks | None] = [None] * (len(reply.answers) * reply.params.n)  # from the first token on

    def add(self, index: int, delta: Delta) -> bytes | Iterator[bytes]:
        choice = index * self._reply.params.n + delta.sample
        frame = self._frames[choice]
        if frame is None:
            frame = self._frames[choice] = self._frame(self._reply, choice)
        return frame.add(delta)

    def end(self) -> bytes:
        options = self._reply.request.stream_options
        if options is None or not options.include_usage:
            return DONE
        return _lead(self._reply) + b'"choices":[],"usage":%s}\n\n' % _encode(self._reply.usage()) + DONE

    def fail(self, error: Exception, has_begun: bool) -> bytes:
        if not has_begun:
            raise error
        return b"data: " + _encode(describe(error, self._reply.name).body) + b"\n\n" + DONE


def _lead(reply: Reply) -> bytes:
    kind = "chat.completion.chunk" if reply.is_chat else "text_completion"
    fields = (reply.id, kind, reply.created, reply.model, reply.fingerprint)
    return b'data: {"id":%b,"object":%b,"created":%b,"model":%b,"system_fingerprint":%b,' % (*map(_encode, fields),)
