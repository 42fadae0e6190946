"""What one body makes the server do, told by its lengths before it is done, and the most that a body may ask for.

Always: more than a bound allows is refused before the work, by the field, the bound and the way out. A key pays for
each body that was read, whether it is answered or refused: admission charges for those it takes, `settle` for others.
What a body has the event loop do is done in pieces, of all bodies one at a time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.live.shared_memory.rate_limits import Limited
from chairlift.server.admission.bounds import Load

# Of one body. Numbers of one request have bounds of their own (`core/params.py`), as has a shape (`text/structured`):
# these bound the products.
MAX_VALUES = 2**20  # numbers, for the most part: the token ids of all prompts
MAX_CONTAINERS = 65_536  # lists and objects
MAX_STRINGS = 65_536
MAX_PROMPTS = 1024
MAX_SAMPLES = 8192  # prompts x n; preparing that many takes a tenth of a second, in which other requests wait
MAX_REPEATED = 8_388_608  # prompts x characters of a shape, or x tokens that are allowed
MAX_SCORES = 4_194_304  # samples x tokens x (1 + logprobs): 50 MiB as they are kept
MAX_TOLD_SCORES = 262_144  # where the end of a stream tells them all again: 64 MiB as objects
MAX_PROMPT_SCORES = 4_194_304  # prompt tokens x n x (1 + prompt_logprobs); some 280 MiB of JSON
MAX_SHOWN_IDS = 8_388_608  # prompt tokens x n, where their ids are answered: some 40 MiB of JSON
MAX_INPUTS = 2048  # texts for vectors and scores
MAX_PAIR_TOKENS = 4_194_304  # of pairs: a query counts for each of its documents
MAX_TOKENS = 262_144  # of a text to tokenize or detokenize; more if the context holds more
MAX_TOOL_CHARACTERS = 2**20  # of the parameters of all tools that may be called

_SHAPE_CHARACTERS, _SCORES, _REFUSED_BYTES = 4, 32, 1024  # that count as a token
_FAR_TOP_K, _FLAT_TOP_P = 256, 0.5
GIVEN_UP_TOKENS = 1024  # what an answer counts as beside its tokens, whose shape the engine cannot or will not follow
_UNCHARGED = (429, 503)  # refused for what the server lacks
PIECE_S = 0.02  # of work in the event loop


@dataclass(slots=True)
class Cost:
    """Of one body, as far as it is known."""

    key: str = ""  # whose turn its work takes
    check: Callable[[], None] = lambda: None  # raises where nobody waits for the work any more
    num_bytes: int = 0  # that were read
    num_tokens: int = 0  # made of its texts
    num_characters: int = 0  # of the shape that its answers are held to
    turn: asyncio.Lock | None = None  # of pieces of all bodies
    _since: float = field(default_factory=time.monotonic)  # when its piece began
    _load: Load | None = None
    _payers: Sequence[Limited] = ()

    @property
    def shape_tokens(self) -> int:
        return self.num_characters // _SHAPE_CHARACTERS

    def owe(self, load: Load, payers: Sequence[Limited]) -> None:
        """From here on, until `paid`, its end is charged for."""
        self._load, self._payers = load, payers

    def paid(self) -> None:
        self._load = None

    async def breathe(self) -> None:
        """To be called between parts of long work, which it makes pieces of: others run between two. Raises where
        nobody waits for the work any more."""
        if self.turn is None or time.monotonic() < self._since + PIECE_S:
            return
        async with self.turn:
            await asyncio.sleep(0)
        self._since = time.monotonic()
        self.check()

    def settle(self, status: int | None) -> None:
        """Its request is over, and was not admitted if it still owes."""
        if self._load is not None and status not in _UNCHARGED:
            num_tokens = self.num_tokens + self.shape_tokens + self.num_bytes // _REFUSED_BYTES
            self._load.charge(self._payers, num_tokens, num_requests=1)
        self.paid()


def prompt_tokens(num_tokens: int, params: SamplingParams) -> int:
    """What the tokens of a prompt count as: where they are scored, each makes a row of scores as a new one does."""
    scores = params.prompt_logprobs
    return num_tokens if scores is None else 2 * num_tokens + num_tokens * (1 + scores) // _SCORES


def score_tokens(num_tokens: int, params: SamplingParams) -> int:
    """What the scores of so many generated tokens count as: of each once more, as those of a prompt, and of all that
    are looked for."""
    if params.logprobs is None and not (params.best_of or params.beam_width):
        return 0
    num_each = 2 * params.beam_width or 1 + (params.logprobs or 0)  # a beam has that many candidates
    return num_tokens + num_tokens * num_each // _SCORES


def filter_tokens(num_tokens: int, params: SamplingParams) -> int:
    """Tokens once more that filters draw from much of the vocabulary: from more than samplers look at first, or from a
    little of what a high temperature made flat."""
    is_far = params.top_k > _FAR_TOP_K or (params.temperature > 1 and params.top_p < _FLAT_TOP_P)
    return num_tokens if is_far and not params.is_greedy else 0


def check_count(field: str, what: str, count: int, most: int) -> None:
    """Raises `InvalidRequest`."""
    if count > most:
        raise InvalidRequest(field, f"must hold at most {most} {what}, got {count}; send less in a request")


def check_samples(num_prompts: int, params: SamplingParams) -> None:
    if num_prompts * params.num_samples > MAX_SAMPLES:
        count = f"{num_prompts} prompts with {params.num_samples} samples each"
        raise InvalidRequest("prompt", f"must ask for at most {MAX_SAMPLES} samples in all, got {count}")


def check_repeated(num_prompts: int, params: SamplingParams) -> None:
    """What goes to the engine with each prompt."""
    shape, ids = params.structured_outputs, params.allowed_token_ids
    for name, what, size in (
        ("structured_outputs", "characters", 0 if shape is None else len(shape.source)),
        ("allowed_token_ids", "ids", 0 if ids is None else len(ids)),
    ):
        if num_prompts * size > MAX_REPEATED:
            count = f"{num_prompts} prompts with {size} {what} each"
            raise InvalidRequest(name, f"must hold at most {MAX_REPEATED} {what} for all prompts, got {count}")


def check_prompt_scores(num_tokens: int, num_shown: int, params: SamplingParams) -> None:
    """`num_tokens`: of all prompts, each of which is shown so many times."""
    if params.prompt_logprobs is None:
        return
    num = num_tokens * num_shown * (params.prompt_logprobs + 1)
    if num > MAX_PROMPT_SCORES:
        raise InvalidRequest(
            "prompt_logprobs",
            f"must ask for at most {MAX_PROMPT_SCORES} scores of prompts in all, got {num}: {num_tokens} prompt tokens "
            f"x {num_shown} choices (n) x {params.prompt_logprobs + 1} (1 + prompt_logprobs, or logprobs with echo)",
        )


def check_shown_ids(num_tokens: int, num_shown: int) -> None:
    if num_tokens * num_shown > MAX_SHOWN_IDS:
        count = f"{num_tokens} prompt tokens x {num_shown} choices (n)"
        raise InvalidRequest("return_token_ids", f"must ask for at most {MAX_SHOWN_IDS} ids of prompts, got {count}")


def most_scored(num_prompts: int, params: SamplingParams, tells_again: bool = False) -> int | None:
    """The most tokens that each answer may have, where its scores bound them; raises `InvalidRequest` where a body asks
    for more."""
    if params.logprobs is None:
        return None
    most = MAX_TOLD_SCORES if tells_again else MAX_SCORES
    num_each = num_prompts * params.num_samples * (1 + params.logprobs)
    num = num_each * (params.max_tokens or 0)
    if num > most:
        raise InvalidRequest(
            "logprobs",
            f"must ask for at most {most} scores of tokens in all, got {num}: "
            f"{num_prompts} prompts x {params.num_samples} samples (n) x {params.max_tokens} tokens (max_tokens) x "
            f"{1 + params.logprobs} (1 + logprobs); ask for fewer of one of them",
        )
    return max(1, most // num_each)
