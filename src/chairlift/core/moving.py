"""Requests that go on in another engine with their keys and values: when they may leave, how long that takes, and
whether it is cheaper than to compute them there again. The same live and simulated.

moving takes     bytes / copied.bytes_per_s + bytes / fetched.bytes_per_s    at the rates of the last ones here: the
                 target fetches as this engine did when it was one
computing takes  tokens x token_s                                            what a prompt token lately took in a step
"""

from collections.abc import Iterable, Iterator

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Pages
from chairlift.core.scheduling.scheduler import Scheduler

FIRST_BYTES_PER_S = 1e9  # until a piece was copied
NUM_FETCHES = 4  # of an engine at once
KEPT_S = 30.0  # a piece that is not fetched
MAX_FETCH_S = 25.0  # for a piece to come; less than it is kept
_FETCH_S = 10.0  # or less, unless computing would take as long
_MEMORY = 4  # pieces that count
_MIB = 2**20
_HOST_BYTES = 1024 * _MIB


def fetch_limit_s(computing_s: float) -> float:
    """For a piece to come, if its tokens would take so long to compute."""
    return min(max(_FETCH_S, computing_s), MAX_FETCH_S)


def host_blocks_to_move(limits: Limits, block_bytes: int) -> int:
    """Blocks of the host that moves go through where it is not said: 1 GiB, or one request of full length."""
    return max(_HOST_BYTES // block_bytes, limits.pages.num_in_prompt(limits.max_model_len))


def host_blocks_of(host_memory: int, block_bytes: int) -> int:
    """Blocks in so many bytes of the host."""
    if host_memory < block_bytes:
        raise InvalidConfig(
            f"host_memory {host_memory / _MIB:.1f} MiB does not hold one block of {block_bytes / _MIB:.1f} MiB"
            "; a number alone is bytes, 4GiB is more"
        )
    return host_memory // block_bytes


def with_room_to_leave(scheduler: Scheduler, asked: Iterable[RequestId]) -> Iterator[RequestId]:
    """Those of the requests asked to leave, in their order, that the host has room for; the others go on until it
    has. One that can never have room is among them: it leaves without keys and values."""
    host, pages = scheduler.tables.host, scheduler.limits.pages
    num_free = host.num_free
    for request in asked:
        progress = scheduler.live.get(request)
        if progress is None or request in scheduler.leaving:
            continue  # what it takes of the host is taken
        num_needed = pages.num_decoding(len(progress.tokens) + 1)
        if num_free < num_needed <= host.num_blocks:
            return
        num_free -= num_needed
        yield request


class CopyRate:
    def __init__(self, bytes_per_s: float = FIRST_BYTES_PER_S) -> None:
        self.bytes_per_s = bytes_per_s
        self._num_learned = 0

    def learn(self, num_bytes: int, seconds: float) -> None:
        """A piece of so many bytes was copied and checked."""
        if seconds > 0.0:
            self._num_learned = min(self._num_learned + 1, _MEMORY)
            self.bytes_per_s += (num_bytes / seconds - self.bytes_per_s) / self._num_learned


class MovePrice:
    def __init__(
        self,
        block_bytes: int,
        pages: Pages,
        copied_per_s: float = FIRST_BYTES_PER_S,
        fetched_per_s: float = FIRST_BYTES_PER_S,
    ) -> None:
        self.copied, self.fetched = CopyRate(copied_per_s), CopyRate(fetched_per_s)  # pieces of this engine, of others
        self._block_bytes = block_bytes
        self._pages = pages

    def is_cheaper(self, num_tokens: int, token_s: float) -> bool:
        """To move so many tokens; `token_s` 0: not known, and then it mostly is."""
        return token_s == 0.0 or self.copy_s(num_tokens) + self.fetch_s(num_tokens) < num_tokens * token_s

    def copy_s(self, num_tokens: int) -> float:
        """At the source, from its host memory to a piece."""
        return self._num_bytes(num_tokens) / self.copied.bytes_per_s

    def fetch_s(self, num_tokens: int) -> float:
        """At the target, from a piece to its host memory."""
        return self._num_bytes(num_tokens) / self.fetched.bytes_per_s

    def _num_bytes(self, num_tokens: int) -> int:
        return self._pages.num_saved(num_tokens) * self._block_bytes
