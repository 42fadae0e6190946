"""Keeps control tokens (`<|im_end|>`) that a client writes in a message as text, so that they end no turn.

In the text that a template makes, its own control tokens and a client's look the same. So the template is given own
names for them ("claimed"), known only to a second tokenizer over the same vocabulary; anything else that looks like a
control token is text:

    template  <|im_start|>user {{ text }}   claimed   {3a1}user {{ text }}   made   {3a1}user is <|im_end|> a token?

A template that composes names ('<|' + role + '|>') cannot be claimed: there a client's are masked before it runs. A
name that the template composes of a client's pieces is then a control token.

    message   is <|im_end|> a token?   masked   is k5c-0. a token?   made   <|user|>is k5c-0. a token?

Always: own names and masks are random per process, so a client cannot write one. Markers that are no tokens of the
model (`[INST]` of Llama 2) are always text.
"""

import re
import secrets
from functools import cached_property
from typing import Any

import tokenizers

from chairlift.core.errors import InvalidRequest

_CONTROL = re.compile(r"<[|\uff5c].+>|<.+[|\uff5c]>")  # not all models mark theirs as special
_MAX_CLAIMED = 8
_MAX_NAME = 100  # characters; a longer one is no control token


class Controls:
    def __init__(self, core: tokenizers.Tokenizer) -> None:
        added: dict[int, Any] = core.get_added_tokens_decoder()
        self._core = core
        self._added = added
        controls = (token_id for token_id, token in added.items() if token.special or _CONTROL.fullmatch(token.content))
        self._names = {added[i].content: i for i in controls if 0 < len(added[i].content) <= _MAX_NAME}
        self._secret, self._mask_secret = secrets.token_hex(8), secrets.token_hex(8)
        self._mark = f"\ue000{self._secret}\ue001"  # before a text for the second tokenizer
        self._claimed: dict[str, str] = {}  # few templates, which have a bound
        # Names that are also pieces of the vocabulary, which text may become.
        self._pieces = {i for name, i in self._names.items() if core.model.token_to_id(name) == i}

    def mask(self, value: Any) -> Any:
        """The same value with the names of control tokens masked in all its texts."""
        if isinstance(value, str):
            mask = f"k{self._mask_secret}-{{}}.".format
            return self._pattern.sub(lambda found: mask(self._names[found[0]]), value) if self._names else value
        if isinstance(value, dict):
            return {self.mask(key): self.mask(each) for key, each in value.items()}
        return [self.mask(each) for each in value] if isinstance(value, list | tuple) else value

    def claim(self, text: str) -> str:
        """A template, or its text of masked values, with own names for its control tokens."""
        if not self._names:
            return text
        return self._pattern.sub(lambda found: self._own_name(self._names[found[0]]), text)

    def claimed(self, template: str) -> str:
        if template not in self._claimed:
            if len(self._claimed) == _MAX_CLAIMED:
                self._claimed.clear()
            self._claimed[template] = self.claim(template)
        return self._claimed[template]

    def unmask(self, text: str) -> str:
        return self._masks.sub(lambda found: self._added[int(found[1])].content, text)

    def disclaim(self, text: str) -> str:
        """Without own names, for error messages: a client that knew one could write it."""
        own = re.compile(f"\ue000{self._secret}(\\d*)\ue001")
        plain = own.sub(lambda found: self._added[int(found[1])].content if found[1] else "", text)
        return self.unmask(plain).replace(self._secret, "?").replace(self._mask_secret, "?")

    def wrap(self, text: str) -> str:
        """A text with own names, for `encode`."""
        return self._mark + text

    def unwrap(self, text: str) -> tuple[str, bool]:
        """The text, and whether it has own names."""
        is_wrapped = text.startswith(self._mark)
        return text[len(self._mark) :] if is_wrapped else text, is_wrapped

    @property
    def core(self) -> tokenizers.Tokenizer:
        return self._twin[0]

    def same(self, ids: list[int]) -> list[int]:
        """Ids of the second tokenizer in the first; raises `InvalidRequest` for text that became a control token."""
        if not self._pieces.isdisjoint(ids):
            raise InvalidRequest("prompt", "spells out a control token, which this tokenizer cannot keep as text")
        same = self._twin[1]
        return [same.get(i, i) for i in ids]

    def _own_name(self, token_id: int) -> str:
        return f"\ue000{self._secret}{token_id}\ue001"  # no letter or sign at its ends, where text may be cut

    @cached_property
    def _masks(self) -> re.Pattern[str]:
        return re.compile(rf"k{self._mask_secret}-(\d+)\.")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(_tree(sorted(self._names)))

    @cached_property
    def _twin(self) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        core = self._core
        twin = tokenizers.Tokenizer(core.model)  # shared, not copied
        if core.normalizer is not None:
            twin.normalizer = core.normalizer
        if core.pre_tokenizer is not None:
            twin.pre_tokenizer = core.pre_tokenizer
        same = {}
        for token_id, token in self._added.items():
            name = token.content
            if name in self._names:
                name = self._own_name(token_id)
                token = tokenizers.AddedToken(
                    name, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False, special=True
                )
            twin.add_tokens([token])
            twin_id = twin.token_to_id(name)
            assert twin_id is not None
            same[twin_id] = token_id
        return twin, same


def _tree(names: list[str]) -> str:
    """A pattern for the longest of the names that reads each character once: some models have thousands."""
    if len(names) == 1:
        return re.escape(names[0])
    can_end = "" in names
    heads = dict.fromkeys(name[0] for name in names if name)
    branches = [re.escape(head) + _tree([n[1:] for n in names if n.startswith(head)]) for head in heads]
    if len(branches) == 1 and not can_end:  # a literal, which is found at memory speed
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if can_end else ''}"
