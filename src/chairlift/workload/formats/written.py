"""Written prompts: instructions, conversations, and a user's own. A tokenizer counts their lengths.

Alpaca, JSON      instruction, input, output: the prompt is `instruction:input`, or the instruction alone, as in the
                  contest; the answer is as long as `output`
ShareGPT, JSON    conversations: the first turn is the prompt, the answer is as long as the second
prompts           prompt (a text) or messages (a chat), output_tokens or max_tokens, and arrival_s, priority, user,
                  deadline_s as in a workload of lengths
"""

from chairlift.workload.fields import Row, length, seconds, shown, text
from chairlift.workload.formats.format import FileFormat, LoadEncoder
from chairlift.workload.formats.lengths import attributes
from chairlift.workload.item import Item


def _alpaca(row: Row, load_encoder: LoadEncoder) -> Item | None:
    more = row.get("input")
    prompt = text(row, "instruction") + (f":{text(row, 'input')}" if more else "")
    return _asked(prompt, text(row, "output"), load_encoder)


def _sharegpt(row: Row, load_encoder: LoadEncoder) -> Item | None:
    turns = row.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise ValueError(f"conversations must be a list of turns, got {shown(turns)}")
    if len(turns) < 2:
        return None
    return _asked(text(turns[0], "value"), text(turns[1], "value"), load_encoder)


def _asked(prompt: str, answer: str, load_encoder: LoadEncoder) -> Item | None:
    encode = load_encoder().encode
    tokens, output_tokens = tuple(encode(prompt)), len(encode(answer))
    if not tokens or output_tokens == 0:
        return None
    return Item(prompt_tokens=len(tokens), output_tokens=output_tokens, prompt=prompt, tokens=tokens)


def _own(row: Row, load_encoder: LoadEncoder) -> Item:
    messages = row.get("messages")
    if messages is None:
        prompt: str | tuple[dict[str, object], ...] = text(row, "prompt")
        tokens = tuple(load_encoder().encode(text(row, "prompt")))
    elif isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        prompt, tokens = tuple(messages), tuple(load_encoder().encode_chat(messages))
    else:
        raise ValueError(f"messages must be a list of messages, got {shown(messages)}")
    if not tokens:
        raise ValueError("the prompt is empty")
    return Item(
        prompt_tokens=len(tokens),
        output_tokens=_output_tokens(row, load_encoder),
        arrival_s=seconds(row, "arrival_s") or 0.0,
        attributes=attributes(row),
        prompt=prompt,
        tokens=tokens,
    )


def _output_tokens(row: Row, load_encoder: LoadEncoder) -> int:
    key = next((key for key in ("output_tokens", "max_tokens") if row.get(key) is not None), None)
    return load_encoder().output_tokens if key is None else length(row, key)


ALPACA = FileFormat("Alpaca", "instruction", _alpaca)
SHAREGPT = FileFormat("ShareGPT", "conversations", _sharegpt)
PROMPTS = FileFormat("prompts", "prompt", _own)
CHATS = FileFormat("chats", "messages", _own)
