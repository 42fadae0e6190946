"""A runner whose key-value memory is a list of integers.

What it stores for a token depends on everything stored before it in the same text, read back through the block table,
as attention does; the sampled token depends on all of it. Any paging mistake changes a token. What drafts that were
wrong wrote is wiped out: reading it is noticed. `expected` gives the tokens of a request that has the machine to
itself, without blocks, plans or a scheduler.

Layers with windows keep a number of their own for each token, which follows from the first: what a token sees of them
is compared. A page that was released too early, or lies elsewhere, holds another. Layers with a state fold every token
into a number: the one that a chunk starts from is compared with that of all tokens before it.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from operator import mul

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.memory.pages import Fixed, Kind, Window
from chairlift.core.plan import Chunk, Sampled, StepPlan, StepResult
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


def _read(before: list[int]) -> int:
    """One number of all that is stored, and of its order."""
    return sum(map(mul, before, count(1))) & MASK


def _entry(before: list[int], token: int, salt: str) -> int:
    """What is kept depends on the salt too: a prefix that is shared between salts shows as a wrong token."""
    return _mix(_read(before), len(before), token, sum(map(ord, salt)))


def _sample(entries: list[int], request: Request, vocab_size: int) -> int:
    return _mix(_entry(entries, 0, request.attributes.prefix_root), request.seed, request.sample_index) % vocab_size


def _states(entries: Sequence[int], place: int) -> int:
    """What layers with a state make of these, one after the other."""
    value = place
    for entry in entries:
        value = _mix(value, entry)
    return value


def likely(entries: list[int], request: Request, vocab_size: int) -> list[tuple[int, float]]:
    """Every token and how likely it is, most likely first."""
    read, length, salt = _read(entries), len(entries), sum(map(ord, request.attributes.prefix_root))
    ranked = [(token, -(_mix(_mix(read, length, token, salt)) % 9973) / 1000) for token in range(vocab_size)]
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
                entries.append(_entry(entries, token, request.attributes.prefix_root))
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
        entries.append(_entry(entries, token, request.attributes.prefix_root))
    output: list[int] = []
    while len(output) < request.max_output:
        token = _sample(entries, request, vocab_size)
        output.append(token)
        if token in request.stop_ids and len(output) >= request.params.min_tokens:
            break
        entries.append(_entry(entries, token, request.attributes.prefix_root))
    return output


class LedgerHost:
    """The host memory of a ledger runner."""

    def __init__(self, blocks: list[list[int]], block_size: int) -> None:
        self._blocks = blocks
        self.block_bytes = 8 * block_size
        self.layout = f"ledger {block_size}"

    def read(self, blocks: Sequence[BlockId], target: memoryview) -> None:
        target[:] = array("q", [entry for block in blocks for entry in self._blocks[block]]).tobytes()

    def write(self, blocks: Sequence[BlockId], source: memoryview) -> None:
        size = self.block_bytes // 8
        entries = array("q", bytes(source)).tolist()
        for place, block in enumerate(blocks):
            self._blocks[block] = entries[place * size : (place + 1) * size]


class LedgerRunner:
    def __init__(
        self, num_blocks: int, block_size: int, vocab_size: int, depth: int = 1, num_host_blocks: int = 0,
        kinds: Sequence[Kind] = (),
    ) -> None:  # fmt: skip
        self.depth = depth
        self.kinds = kinds  # of layers that do not keep all tokens
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.memory = [[EMPTY] * block_size for _ in range(num_blocks)]
        self.host = [[EMPTY] * block_size for _ in range(num_host_blocks)]
        self.host_memory = LedgerHost(self.host, block_size)
        self.last: dict[RequestId, int] = {}  # what each request sampled last
        self.plans: list[StepPlan] = []
        self.fail_steps: frozenset[int] = frozenset()
        self.num_drafts = self.num_accepted = 0
        self.is_too_large: Callable[[StepPlan], bool] = lambda plan: False
        self.slots: dict[int, int] = {}  # adapters by slot
        self._done: deque[StepResult] = deque()

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan.snapshot())
        if plan.step in self.fail_steps:
            raise RunnerFailed(f"step {plan.step} was told to fail")
        if self.is_too_large(plan):
            self._spoil(plan)
            raise RunnerFull(f"step {plan.step} does not fit")
        self.slots |= {slot: adapter for adapter, slot in plan.loads}
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
        more: dict[RequestId, list[Sampled]] = {}
        for place, chunk in enumerate(plan.chunks):
            assert bool(chunk.drafts) is (plan.num_decodes <= place < plan.num_decodes + plan.num_drafting)
            self._check_adapter(plan, chunk)
            entries = self._compute(chunk)
            self._check_beside(chunk, entries)
            self._check_states(chunk, entries)
            for i in range(chunk.start, chunk.start + chunk.count):
                self._write_beside(chunk, i, entries[i])
            self._write_states(chunk, entries, plan)
            for request in chunk.samples:
                first, *others = self._choose(entries, request, chunk.drafts)
                tokens.append(first.token)
                self.last[request.id] = [first, *others][-1].token
                if first.score is not None:
                    scores[request.id] = first.score
                if others:
                    more[request.id] = others
                self._wipe(plan, chunk, chunk.start + 1 + len(others))
            if chunk.request.params.prompt_logprobs is not None:
                prompt = chunk.request.prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
                prompt_scores[chunk.request.id] = tuple(TokenScore(t, 0.0, 0.0, 1, ()) for t in prompt)
        self._done.append(StepResult(plan.step, tokens, scores, prompt_scores, more=more))

    def collect(self) -> StepResult:
        return self._done.popleft()

    def _choose(self, entries: list[int], request: Request, drafts: tuple[int, ...]) -> list[Sampled]:
        """What follows the last known token, and the drafts after it as long as they are right."""
        chosen: list[Sampled] = []
        num_known = len(entries) - len(drafts)
        for i in range(len(drafts) + 1):
            before = entries[: num_known + i]
            token, score = _sample(before, request, self.vocab_size), None
            if request.params.logprobs is not None:
                top = likely(before, request, self.vocab_size)[: request.params.logprobs]
                score = TokenScore(token, 0.0, -float(token), 1, tuple(top))
            chosen.append(Sampled(token, score))
            if i < len(drafts) and token != drafts[i]:
                break
        self.num_drafts += len(drafts)
        self.num_accepted += len(chosen) - 1
        return chosen

    def _wipe(self, plan: StepPlan, chunk: Chunk, end: int) -> None:
        """Nothing that drafts wrote from there on is there any more."""
        for i in range(end, chunk.start + chunk.count if chunk.drafts else end):
            self.memory[chunk.blocks[i // self.block_size]][i % self.block_size] = EMPTY
            self._write_beside(chunk, i, EMPTY)
        if chunk.drafts:
            self._lose_states(plan, chunk, end)

    def _lose_states(self, plan: StepPlan, chunk: Chunk, start: int) -> None:
        """Those that this chunk wrote after more tokens."""
        size, after = self.block_size, (chunk.start + chunk.count) // self.block_size
        for place, kind in self._fixed():
            if after * size > start:
                self._keep(kind.half(chunk.tables[1 + place], after)[1], EMPTY)
            for checkpoint in plan.checkpoints:
                if (checkpoint.request, checkpoint.place) == (chunk.request.id, place) and checkpoint.position > start:
                    self._keep(checkpoint.pages, EMPTY)

    def _pages(self, chunk: Chunk, place: int, i: int) -> Sequence[BlockId]:
        """Of the block of a token, one for each group of layers of a kind."""
        table, num = chunk.tables[1 + place], self.kinds[place].num_pages
        if isinstance(self.kinds[place], Fixed):
            return ()
        first = i // self.block_size * num
        assert len(table) >= first + num, "there are no pages of windows"
        return table[first : first + num]

    def _write_beside(self, chunk: Chunk, i: int, entry: int) -> None:
        for place, kind in enumerate(self.kinds):
            pages = self._pages(chunk, place, i)
            if isinstance(kind, Fixed) and self._keeps_row(chunk, i):
                pages, _ = kind.half(chunk.tables[1 + place], i // self.block_size)
            for group, page in enumerate(pages):
                self.memory[page][i % self.block_size] = EMPTY if entry == EMPTY else _mix(entry, place, group)

    def _keeps_row(self, chunk: Chunk, i: int) -> bool:
        """In layers with a state: of the tile that a chunk ends in, or may end in."""
        return bool(chunk.drafts) or i // self.block_size == (chunk.start + chunk.count) // self.block_size

    def _fixed(self) -> list[tuple[int, Fixed]]:
        return [(place, kind) for place, kind in enumerate(self.kinds) if isinstance(kind, Fixed)]

    def _check_states(self, chunk: Chunk, entries: list[int]) -> None:
        """The state and the rows that a chunk goes on from are those of all tokens before it."""
        size, first = self.block_size, chunk.start // self.block_size
        for place, kind in self._fixed():
            rows, state = kind.half(chunk.tables[1 + place], first)
            value = _states(entries[: first * size], place)
            for group, page in enumerate(state if first else ()):
                found = self.memory[page][0]
                assert found == _mix(value, group), f"request {chunk.request.id} goes on from another state"
            for i in range(first * size, chunk.start):
                for group, page in enumerate(rows):
                    found = self.memory[page][i % size]
                    assert found == _mix(entries[i], place, group), f"request {chunk.request.id} has other rows at {i}"

    def _write_states(self, chunk: Chunk, entries: list[int], plan: StepPlan) -> None:
        size, end = self.block_size, chunk.start + chunk.count
        for place, kind in self._fixed():
            if end // size > chunk.start // size:
                state = kind.half(chunk.tables[1 + place], end // size)[1]
                self._keep(state, _states(entries[: end // size * size], place))
            for checkpoint in plan.checkpoints:
                if (checkpoint.request, checkpoint.place) == (chunk.request.id, place):
                    assert chunk.start < checkpoint.position <= end and checkpoint.position % size == 0
                    self._keep(checkpoint.pages, _states(entries[: checkpoint.position], place))

    def _keep(self, pages: Sequence[BlockId], value: int) -> None:
        for group, page in enumerate(pages):
            self.memory[page] = [_mix(value, group)] * self.block_size

    def _check_beside(self, chunk: Chunk, entries: list[int]) -> None:
        """All that the first token of a chunk sees of layers with windows is there."""
        for place, kind in enumerate(self.kinds):
            if not isinstance(kind, Window):
                continue
            for i in range(max(0, chunk.start - kind.reach + 1), chunk.start):
                for group, page in enumerate(self._pages(chunk, place, i)):
                    found = self.memory[page][i % self.block_size]
                    expected = _mix(entries[i], place, group)
                    assert found == expected, f"request {chunk.request.id} sees other windows at {i}"

    def _spoil(self, plan: StepPlan) -> None:
        """What a step that is broken off may leave behind: every place it was to write to holds nonsense."""
        self.slots |= {slot: EMPTY for _, slot in plan.loads}
        for copy in plan.swap_outs:
            self.host[copy.target] = [EMPTY] * self.block_size
        for copy in (*plan.swap_ins, *plan.copies):
            self.memory[copy.target] = [EMPTY] * self.block_size
        for chunk in plan.chunks:
            self.last.update(dict.fromkeys((request.id for request in chunk.samples), EMPTY))
            for i in range(chunk.start, chunk.start + chunk.count):
                self.memory[chunk.blocks[i // self.block_size]][i % self.block_size] = EMPTY
                self._write_beside(chunk, i, EMPTY)
            self._lose_states(plan, chunk, chunk.start)

    def _compute(self, chunk: Chunk) -> list[int]:
        assert 1 <= chunk.count <= len(chunk.request.prompt) + chunk.request.max_output - 1 - chunk.start
        table, size = chunk.blocks[: chunk.num_blocks], self.block_size
        entries = [entry for block in table for entry in self.memory[block]][: chunk.start]
        assert EMPTY not in entries, f"request {chunk.request.id} reads a place that was never written"
        for i in range(chunk.start, chunk.start + chunk.count):
            unknown = chunk.drafts[i - chunk.num_tokens :] or (self.last.get(chunk.request.id, EMPTY),)
            token = chunk.tokens[i] if i < chunk.num_tokens else unknown[0]
            entries.append(_entry(entries, token, chunk.request.attributes.prefix_root))
            self.memory[table[i // size]][i % size] = entries[-1]
        return entries

    def _check_adapter(self, plan: StepPlan, chunk: Chunk) -> None:
        adapter = chunk.request.attributes.adapter
        if adapter:
            assert self.slots.get(dict(plan.adapters)[adapter]) == adapter, f"adapter {adapter} is not in its slot"

    def _check_writers(self, plan: StepPlan) -> None:
        """No two chunks of a step write to one block, and none writes where another only reads."""
        writers: dict[int, int] = {}
        for place, chunk in enumerate(plan.chunks):
            for block in self._touched(plan, place)[1]:
                assert block not in writers, f"requests {writers[block]} and {chunk.request.id} write to block {block}"
                writers[block] = chunk.request.id
        for place, chunk in enumerate(plan.chunks):
            for block in self._touched(plan, place)[0]:
                assert block not in writers, f"block {block} is read by {chunk.request.id} and written in one step"

    def _touched(self, plan: StepPlan, place: int) -> tuple[list[BlockId], list[BlockId]]:
        """Blocks that a chunk only reads, and those that it writes to."""
        chunk, size = plan.chunks[place], self.block_size
        first, end = chunk.start // size, (chunk.start + chunk.count - 1) // size + 1
        read, written = [*chunk.blocks[:first]], [*chunk.blocks[first:end]]
        for kind, table in zip(self.kinds, chunk.tables[1:], strict=True):
            if isinstance(kind, Fixed):
                last, after = (chunk.start + chunk.count - 1) // size, (chunk.start + chunk.count) // size
                tiles = range(first, last + 1) if chunk.drafts else range(after, last + 1)
                own = [page for tile in tiles for page in kind.half(table, tile)[0]]
                own += kind.half(table, after)[1] if after > first else ()
                written += dict.fromkeys(own)
                base = (*kind.half(table, first)[0], *(kind.half(table, first)[1] if first else ()))
                read += [page for page in base if page not in own]
                continue
            num, low = kind.num_pages, kind.num_behind(chunk.start)
            read += table[low * num : first * num]
            written += table[first * num : end * num]
        return read, written
