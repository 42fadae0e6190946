"""The model's tokenizer under the names of transformers, for scripts that ask an engine for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.text.chat import render
from chairlift.text.responses.tools.history import prepared
from chairlift.text.tokenizer import Tokenizer


class NamedTokenizer:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.bos_token_id = tokenizer.bos_id
        self.eos_token_id = tokenizer.eos_id
        self.bos_token = tokenizer.template_tokens.get("bos_token")
        self.eos_token = tokenizer.template_tokens.get("eos_token")
        self.chat_template = tokenizer.chat_template
        self.vocab_size = tokenizer.num_trained

    def __len__(self) -> int:
        return self._tokenizer.vocab_size

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = True) -> dict[str, Any]:
        if isinstance(text, str):
            return {"input_ids": self.encode(text, add_special_tokens)}
        return {"input_ids": [self.encode(each, add_special_tokens) for each in text]}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special=add_special_tokens)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._tokenizer.decode(ids, skip_special=skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **template_kwargs: Any,
    ) -> str | list[int]:
        """The prompt as text, or as token ids."""
        messages, shown = prepared(conversation, tools or (), None, self.chat_template)
        text = render(
            self._tokenizer,
            messages,
            add_generation_prompt,
            continue_final_message,
            template_kwargs,
            escape_special_tokens=tokenize,
            tools=shown,
        )
        return self.encode(text, add_special_tokens=False) if tokenize else text
