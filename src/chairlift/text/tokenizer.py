"""The tokenizer: text to token ids and back, with what the model's files say about special tokens and chat.

Always: `decode(ids)` is the joined bytes of the visible tokens read as UTF-8 (broken bytes become U+FFFD), less one
leading space where the vocabulary adds one; `Detokenizer` follows the same rule. Knows nothing of files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import tokenizers

from chairlift.core.errors import InvalidRequest
from chairlift.text.controls import Controls
from chairlift.text.cuts import Cuts, find_cuts
from chairlift.text.lengths import most_characters, parts_of
from chairlift.text.panics import LibraryFailed, caught
from chairlift.text.spelling import Spelling, WholeTexts


@dataclass(frozen=True, slots=True)
class LongTexts:
    """How to tokenize texts that are too long for one piece."""

    characters_per_token: int  # at most
    cuts: Cuts | None  # None: a text has to be tokenized whole


class Tokenizer:
    def __init__(
        self,
        core: tokenizers.Tokenizer,
        *,
        bos_id: int | None = None,
        eos_id: int | None = None,
        add_bos: bool | None = None,  # None: what the tokenizer's own post-processor does
        more_special: Iterable[int] = (),
        chat_template: str | None = None,
        template_tokens: Mapping[str, str] | None = None,  # "bos_token": "<s>" and the like
        response_template: dict[str, Any] | None = None,  # how answers are written, where the model's files say so
    ) -> None:
        # Files may set limits for training; a prompt is never cut or padded.
        core.no_truncation()
        core.no_padding()
        self._core = core
        self.controls = Controls(core)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.chat_template = chat_template
        self.response_template = response_template
        self.template_tokens = dict(template_tokens or {})
        added: dict[int, Any] = core.get_added_tokens_decoder()
        special = {token_id for token_id, token in added.items() if token.special}
        special.update(token_id for token_id in (bos_id, eos_id) if token_id is not None)
        special.update(more_special)
        self.special_ids = frozenset(special)
        self.num_trained = core.get_vocab_size(with_added_tokens=False)  # tokens that were not added afterwards
        self.vocab_size = max(core.get_vocab_size(with_added_tokens=True), max(added, default=-1) + 1)
        self._spelled = partial(Spelling, parts_of(core.decoder), core.id_to_token, added)
        self.spelling = self._spelled()
        self.whole_texts = WholeTexts(self.spelling)
        self._prefix = self._prefix_ids(add_bos)

    def _prefix_ids(self, add_bos: bool | None) -> list[int]:
        # Only tokens before the text: a prompt is to be continued, so no end token goes behind it.
        if add_bos is not None:
            return [self.bos_id] if add_bos and self.bos_id is not None else []
        plain = self._core.encode("a", add_special_tokens=False).ids
        framed: list[int] = self._core.encode("a", add_special_tokens=True).ids
        lengths = range(len(framed) - len(plain) + 1)
        return next((framed[:n] for n in lengths if framed[n : n + len(plain)] == plain), [])

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        text, has_own_names = self.controls.unwrap(text)
        return self.encode_piece(text, add_special, has_own_names)

    def encode_piece(self, text: str, add_special: bool, has_own_names: bool, releases_gil: bool = False) -> list[int]:
        """`has_own_names`: whether the text has own names for control tokens (see `controls`). `releases_gil`: lets
        other threads run meanwhile, which pays only for long texts."""
        core = self.controls.core if has_own_names else self._core
        try:
            with caught():
                if releases_gil:  # the library holds the interpreter for a single text, but not for a batch
                    [encoding] = core.encode_batch_fast([text], add_special_tokens=False)
                else:
                    encoding = core.encode(text, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidRequest("prompt", "holds half of a surrogate pair, which is not text") from error
        except LibraryFailed as error:
            raise InvalidRequest("prompt", f"cannot be made into tokens: {error}") from error
        ids: list[int] = self.controls.same(encoding.ids) if has_own_names else encoding.ids
        return self._prefix + ids if add_special else ids

    def framed(self, text: str, second: str | None = None) -> tuple[list[int], list[int]]:
        """A short text, or a pair, with all tokens that the tokenizer's files put around it, and the type of each."""
        encoding = self._core.encode(text, second, add_special_tokens=True)
        return encoding.ids, encoding.type_ids

    @cached_property
    def long_texts(self) -> LongTexts:
        """Slow on first use: reads the whole vocabulary."""
        spelling = self._spelled()  # not to be kept
        spelled = [spelling[token] for token in range(self.vocab_size)]
        cuts = find_cuts(self._core, spelled, partial(self.encode, add_special=False))
        return LongTexts(most_characters(self._core, spelled), cuts)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        hidden = self.special_ids if skip_special else ()
        text = b"".join([self.spelling[i] for i in ids if i not in hidden]).decode(errors="replace")
        return text[1:] if self.spelling.drops_first_space and text.startswith(" ") else text

    def has_token(self, text: str) -> bool:
        """Whether the text is one token."""
        return self._core.token_to_id(text) is not None

    def piece(self, token_id: int) -> str:
        """The token's text on its own; U+FFFD for part of a character."""
        return self.spelling[token_id].decode(errors="replace")
