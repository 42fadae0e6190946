"""The numbers that bound a request and a step, and the one check that a request passes before it is queued."""

from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.core.errors import ContextFull, InvalidConfig, InvalidRequest
from chairlift.core.memory.pages import Group, Pages, pages_of
from chairlift.core.params import MAX_LOGPROBS, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    vocab_size: int
    max_model_len: int  # prompt plus output
    block_size: int  # tokens per block
    num_blocks: int  # pages, where layers form groups: a block of tokens then takes several
    max_running: int  # requests that share a step
    max_step_tokens: int  # tokens computed in a step, prompts and decodes together
    max_step_prompts: int = 0  # requests that may compute prompt tokens in one step; 0: no limit
    max_drafts: int = 0  # tokens that may be drafted for a request in one step; 0: nothing is drafted
    groups: tuple[Group, ...] = ()  # of layers that do not keep all tokens (`memory/pages.py`)
    num_adapter_slots: int = 0  # adapters that steps may be computed with at once; 0: requests have none

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_model_len", "block_size", "num_blocks", "max_running", "max_step_tokens"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} must be at least 1, got {getattr(self, name)}")
        # Every running request decodes in every step, so a step must have room for all of them.
        if self.max_step_tokens < self.max_running:
            raise InvalidConfig(
                f"max_step_tokens {self.max_step_tokens} must be at least max_running {self.max_running}"
            )

    @property
    def pages(self) -> Pages:
        return pages_of(self.block_size, self.max_step_tokens, self.groups)

    @property
    def max_pool_tokens(self) -> int:
        """Of the longest request that the whole pool holds."""
        return self.pages.max_tokens(self.num_blocks) if self.groups else self.num_blocks * self.block_size

    @property
    def num_full_length(self) -> float:
        """Requests of full length that the pool holds at once."""
        if self.groups:
            return self.num_blocks / self.pages.num_decoding(self.max_model_len)
        return self.max_pool_tokens / self.max_model_len


def room_after(length: int, limits: Limits) -> int:
    """Tokens that fit after a prompt of this length; raises `InvalidRequest` when none does."""
    room = context_len(limits) - length
    if room < 1:
        why = f"{length} tokens leave no room for output{cache_bound(limits)}"
        raise ContextFull("prompt", why, context_len=context_len(limits), num_prompt=length)
    return room


def output_room(prompt: Sequence[int], params: SamplingParams, limits: Limits) -> int:
    """The most tokens this request may produce; raises `InvalidRequest` when it can never be served.

    The only check of a request: the engine takes it as it is.
    """
    length = len(prompt)
    if length == 0:
        raise InvalidRequest("prompt", "must not be empty")
    room = room_after(length, limits)  # before each of millions of tokens is looked at
    if min(prompt) < 0 or max(prompt) >= limits.vocab_size:
        strange = next(t for t in prompt if not 0 <= t < limits.vocab_size)
        raise InvalidRequest("prompt", f"token id {strange} is outside the vocabulary of {limits.vocab_size}")
    for name, ids in (
        ("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids),
        ("allowed_token_ids", params.allowed_token_ids or ()),
    ):  # fmt: skip
        bad = next((t for t in ids if t >= limits.vocab_size), None)
        if bad is not None:
            raise InvalidRequest(name, f"token id {bad} is outside the vocabulary of {limits.vocab_size}")
    for name, at_once in (("n", params.n), ("best_of", params.best_of), ("beam_width", params.beam_width)):
        if at_once > limits.max_running:
            raise InvalidRequest(name, f"{at_once} at once are more than the running limit of {limits.max_running}")
    if params.beam_width and params.logprobs is not None:
        raise InvalidRequest("logprobs", "is not available in a beam search")
    if params.max_tokens is None:
        return room
    if params.max_tokens > room:
        after = f"at most {room} fit after a prompt of {length} token{'s' if length > 1 else ''}"
        why = f"{after}{cache_bound(limits)}, got {params.max_tokens}"
        raise ContextFull("max_tokens", why, context_len=context_len(limits), num_prompt=length)
    return params.max_tokens


def context_len(limits: Limits) -> int:
    """Tokens of prompt and output together."""
    # The last token is never computed, so the cache needs one place less than the text has tokens.
    return min(limits.max_model_len, limits.max_pool_tokens + 1)


def cache_bound(limits: Limits) -> str:
    """Names the KV cache, and what makes it larger, where it holds less than the model's context; else empty."""
    return "" if limits.max_model_len <= limits.max_pool_tokens + 1 else f" in {_whole_cache(limits)}"


def _whole_cache(limits: Limits) -> str:
    return f"the whole KV cache of {limits.max_pool_tokens} tokens (--kv-memory or --num-blocks makes it larger)"


def num_offered(params: SamplingParams, num_stops: int, num_prompt: int, limits: Limits) -> int:
    """Candidates each member of a beam search offers: enough that `beam_width` of them go on even if all stops are
    among them. Raises `InvalidRequest` when the search can never be carried out."""
    width = params.beam_width
    count = width * max(2, 1 + num_stops)
    if count > min(MAX_LOGPROBS, limits.vocab_size):
        most = min(MAX_LOGPROBS, limits.vocab_size) // max(2, 1 + num_stops)
        raise InvalidRequest("beam_width", f"must be at most {most} with {num_stops} stop tokens, got {width}")
    num_tokens = num_prompt + (params.max_tokens or limits.max_model_len - num_prompt)
    # One of them may have to be computed again, as a prompt, beside the others.
    pages = limits.pages
    if (width - 1) * pages.num_decoding(num_tokens) + pages.num_in_prompt(num_tokens) > limits.num_blocks:
        raise InvalidRequest(
            "beam_width",
            f"{width} continuations of up to {num_tokens} tokens exceed {_whole_cache(limits)}; "
            "ask for fewer or set max_tokens",
        )
    return count
