"""A runner whose key-value memory is a list of integers.

What it stores for a token depends on everything stored before it in the same text, read back through the block table,
as attention does; the sampled token depends on all of it. Any paging mistake changes a token. `expected` gives the
tokens of a request that has the machine to itself, without blocks, plans or a scheduler.
"""

from collections import deque
from collections.abc import Callable

from chairlift.core.ids import RequestId
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.ports import RunnerFailed, RunnerFull
from chairlift.core.request import Request
from chairlift.core.score import TokenScore

MASK = (1 << 61) - 1
EMPTY = -1


def _mix(*values: int) -> int:
    h = 0x9E3779B97F4A7C15
    for v in values:
        h = ((h ^ (v + 0x7F4A7C15)) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & MASK
        h ^= h >> 29
    return h


def _entry(before: list[int], token: int, salt: str) -> int:
    """What is kept depends on the salt too: a prefix that is shared between salts shows as a wrong token."""
    return _mix(sum((i + 1) * v for i, v in enumerate(before)) & MASK, len(before), token, sum(map(ord, salt)))


def _sample(entries: list[int], request: Request, vocab_size: int) -> int:
    return _mix(_entry(entries, 0, request.attributes.cache_salt), request.seed, request.sample_index) % vocab_size


def likely(entries: list[int], request: Request, vocab_size: int) -> list[tuple[int, float]]:
    """Every token and how likely it is, most likely first."""
    ranked = [
        (token, -(_mix(_entry(entries, token, request.attributes.cache_salt)) % 9973) / 1000)
        for token in range(vocab_size)
    ]
    return sorted(ranked, key=lambda pair: (-pair[1], pair[0]))


def expected_beams(request: Request, vocab_size: int) -> list[list[int]]:
    """The best answers of a beam search that has the machine to itself, written plainly."""
    width, limit = request.params.beam_width, request.max_output
    offered = width * max(2, 1 + len(request.stop_ids))
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        found = []
        for total, output in alive:
            entries: list[int] = []
            for token in [*request.prompt, *output]:
                entries.append(_entry(entries, token, request.attributes.cache_salt))
            found += [(total + p, [*output, t]) for t, p in likely(entries, request, vocab_size)[:offered]]
        found = sorted(found, key=lambda pair: -pair[0])[:offered]
        alive = [(s, o) for s, o in found if o[-1] not in request.stop_ids][:width]
        over = [(s, o) for s, o in found[:width] if o[-1] in request.stop_ids or length == limit]
        ended += [(s / length**request.params.length_penalty, o) for s, o in over]
        if len(ended) >= width:
            break
    return [output for _, output in sorted(ended, key=lambda pair: (-pair[0], pair[1]))[: request.params.n]]


def expected(request: Request, vocab_size: int) -> list[int]:
    """The output tokens this request must get, whatever shares its steps."""
    entries: list[int] = []
    for token in request.prompt:
        entries.append(_entry(entries, token, request.attributes.cache_salt))
    output: list[int] = []
    while len(output) < request.max_output:
        token = _sample(entries, request, vocab_size)
        output.append(token)
        if token in request.stop_ids and len(output) >= request.params.min_tokens:
            break
        entries.append(_entry(entries, token, request.attributes.cache_salt))
    return output


class LedgerRunner:
    def __init__(
        self, num_blocks: int, block_size: int, vocab_size: int, depth: int = 1, num_host_blocks: int = 0
    ) -> None:
        self.depth = depth
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.memory = [[EMPTY] * block_size for _ in range(num_blocks)]
        self.host = [[EMPTY] * block_size for _ in range(num_host_blocks)]
        self.last: dict[RequestId, int] = {}  # what each request sampled last
        self.plans: list[StepPlan] = []
        self.fail_steps: frozenset[int] = frozenset()
        self.is_too_large: Callable[[StepPlan], bool] = lambda plan: False
        self._done: deque[StepResult] = deque()

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan.snapshot())
        if plan.step in self.fail_steps:
            raise RunnerFailed(f"step {plan.step} was told to fail")
        if self.is_too_large(plan):
            self._spoil(plan)
            raise RunnerFull(f"step {plan.step} does not fit")
        for copy in plan.swap_outs:
            self.host[copy.target] = list(self.memory[copy.source])
        for copy in plan.swap_ins:
            self.memory[copy.target] = list(self.host[copy.source])
        for copy in plan.copies:
            self.memory[copy.target] = list(self.memory[copy.source])
        self._check_writers(plan)
        tokens: list[int] = []
        prompt_scores = {}
        scores = {}
        for chunk in plan.chunks:
            entries = self._compute(chunk)
            for request in chunk.samples:
                token = _sample(entries, request, self.vocab_size)
                tokens.append(token)
                self.last[request.id] = token
                if request.params.logprobs is not None:
                    top = likely(entries, request, self.vocab_size)[: request.params.logprobs]
                    scores[request.id] = TokenScore(token, 0.0, -float(token), 1, tuple(top))
            if chunk.request.params.prompt_logprobs is not None:
                prompt = chunk.request.prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
                prompt_scores[chunk.request.id] = tuple(TokenScore(t, 0.0, 0.0, 1, ()) for t in prompt)
        self._done.append(StepResult(plan.step, tokens, scores, prompt_scores))

    def collect(self) -> StepResult:
        return self._done.popleft()

    def _spoil(self, plan: StepPlan) -> None:
        """What a step that is broken off may leave behind: every place it was to write to holds nonsense."""
        for copy in plan.swap_outs:
            self.host[copy.target] = [EMPTY] * self.block_size
        for copy in (*plan.swap_ins, *plan.copies):
            self.memory[copy.target] = [EMPTY] * self.block_size
        for chunk in plan.chunks:
            self.last.update(dict.fromkeys((request.id for request in chunk.samples), EMPTY))
            for i in range(chunk.start, chunk.start + chunk.count):
                self.memory[chunk.blocks[i // self.block_size]][i % self.block_size] = EMPTY

    def _compute(self, chunk: Chunk) -> list[int]:
        assert 1 <= chunk.count <= len(chunk.request.prompt) + chunk.request.max_output - 1 - chunk.start
        table, size = chunk.blocks[: chunk.num_blocks], self.block_size
        entries = [entry for block in table for entry in self.memory[block]][: chunk.start]
        assert EMPTY not in entries, f"request {chunk.request.id} reads a place that was never written"
        for i in range(chunk.start, chunk.start + chunk.count):
            token = chunk.tokens[i] if i < chunk.num_tokens else self.last[chunk.request.id]
            entries.append(_entry(entries, token, chunk.request.attributes.cache_salt))
            self.memory[table[i // size]][i % size] = entries[-1]
        return entries

    def _check_writers(self, plan: StepPlan) -> None:
        """No two chunks of a step write to one block, and nobody writes where another only reads."""
        size = self.block_size
        writers: dict[int, int] = {}
        for chunk in plan.chunks:
            first, last = chunk.start // size, (chunk.start + chunk.count - 1) // size
            for block in chunk.blocks[first : last + 1]:
                assert block not in writers, f"requests {writers[block]} and {chunk.request.id} write to block {block}"
                writers[block] = chunk.request.id
        for chunk in plan.chunks:
            for block in chunk.blocks[: chunk.start // size]:
                assert block not in writers, f"block {block} is read by {chunk.request.id} and written in one step"
