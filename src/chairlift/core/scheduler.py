"""The scheduler: which tokens of which requests the next step computes, and what a step's result means for them.

There are no phases. Every request has tokens that are known and tokens that are computed, and a step computes some of
the difference under a token budget: first one token for each request that is only one behind (a decode), then as much
of the prompts in progress as fits, then new prompts. When blocks run out the policy names a victim, which gives all
its blocks back and later computes its tokens again.

Plans may be issued before earlier ones are committed. A plan counts a token it will sample as known (pending) at once,
so the next plan can compute it; `commit` brings its value. A request that turns out to have ended meanwhile is
forgotten, and what later plans say of it is ignored. Runners work in order, so blocks can be given to others at once.

Deterministic: no clock (time comes in as `now`), no randomness, ties by id.
"""

from chairlift.core.events import Admitted, Event, Finished, Forked, Preempted, PromptScored, Queued, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import BlockCopy, Chunk, StepPlan, StepResult
from chairlift.core.policy import Policy
from chairlift.core.pool import BlockPool
from chairlift.core.queue import RankedQueue
from chairlift.core.request import FinishReason, Progress, Request, State


class Scheduler:
    def __init__(self, limits: Limits, policy: Policy, has_prefix_index: bool = True) -> None:
        self.limits = limits
        self.policy = policy
        self.pool = BlockPool(limits.num_blocks, limits.block_size, has_prefix_index)
        self.live: dict[RequestId, Progress] = {}
        self.running: dict[RequestId, Progress] = {}  # in order of admission
        self.waiting = RankedQueue()
        self.preempted = RankedQueue()  # in order of arrival; these go before any that waits
        self._events: list[Event] = []
        self._num_steps = 0

    # Requests come and go.

    def add(self, samples: tuple[Request, ...], now: float) -> None:
        """Queues one prompt; several requests are samples of it and share its blocks."""
        lead, *others = (Progress.of(request, now) for request in samples)
        _attach(lead, others)
        for progress in (lead, *others):
            self.live[progress.id] = progress
            self._events.append(Queued(progress.id, now))
        self.waiting.push(lead, self.policy.rank(lead))

    def abort(self, request: RequestId, now: float) -> None:
        """Frees everything at once, whatever the request is doing; an unknown id has already ended."""
        progress = self.live.get(request)
        if progress is None:
            return
        if progress.lead is not None:
            progress.lead.siblings.remove(progress)
        self._end(progress, FinishReason.ABORT, "", now)

    def fail(self, plan: StepPlan, message: str, now: float) -> None:
        """Ends every request of a plan that could not be carried out."""
        for chunk in plan.chunks:
            for request in (chunk.request, *chunk.samples):
                progress = self.live.get(request.id)
                if progress is not None:
                    self._end(progress, FinishReason.ERROR, message, now)

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    # Planning.

    def schedule(self, now: float) -> StepPlan | None:
        """The next step, or None when there is nothing to compute now."""
        decodes, prompts = self._make_room(now)
        copies: list[BlockCopy] = []
        chunks: list[Chunk] = []
        size = self.pool.block_size
        for progress in decodes:
            start = progress.num_computed
            if start == len(progress.blocks) * size or progress.has_shared_tail:
                self._grow(progress, copies)
            if progress.siblings:
                chunks.append(self._chunk(progress, 1, now))
                continue
            # The common case, spelled out for speed: one token of a request that is one behind.
            tokens, blocks = progress.tokens, progress.blocks
            chunks.append(Chunk(progress.request, start, 1, tokens, len(tokens), blocks, len(blocks), progress.alone))
            progress.num_computed = start + 1
            progress.num_pending += 1
        num_decodes = len(chunks)
        budget = self.limits.max_step_tokens - num_decodes
        num_prompts = self.limits.max_step_prompts or self.limits.max_running
        for progress in prompts[:num_prompts]:
            if budget == 0:
                break
            chunk = self._chunk(progress, min(budget, progress.num_known - progress.num_computed), now)
            budget -= chunk.count
            chunks.append(chunk)
        while budget > 0 and len(chunks) - num_decodes < num_prompts and (admitted := self._admit(now)):
            chunk = self._chunk(admitted, min(budget, admitted.num_known - admitted.num_computed), now)
            budget -= chunk.count
            chunks.append(chunk)
        if not chunks:
            return None
        self._num_steps += 1
        num_tokens = self.limits.max_step_tokens - budget
        return StepPlan(self._num_steps, tuple(chunks), tuple(copies), num_tokens, num_decodes)

    def _make_room(self, now: float) -> tuple[list[Progress], list[Progress]]:
        """Running requests that decode, and those still in their prompt; preempts until the decodes can grow."""
        size = self.pool.block_size
        while True:
            decodes: list[Progress] = []
            prompts: list[Progress] = []
            num_growing = 0
            for progress in self.running.values():
                known, computed = len(progress.tokens) + progress.num_pending, progress.num_computed
                if known == progress.limit:
                    continue  # the tokens on their way are its last
                if known - computed == 1:
                    decodes.append(progress)
                    if computed == len(progress.blocks) * size or progress.has_shared_tail:
                        num_growing += 1
                else:
                    prompts.append(progress)
            if num_growing <= self.pool.num_free:
                return decodes, prompts
            self._preempt(self.running[self.policy.victim(self.running.values())], now)

    def _grow(self, progress: Progress, copies: list[BlockCopy]) -> None:
        """Makes sure the next token's place exists and is this request's alone."""
        if progress.num_computed == len(progress.blocks) * self.pool.block_size:
            progress.blocks.extend(self.pool.take(1))
        elif progress.has_shared_tail:
            progress.has_shared_tail = False
            tail = progress.blocks[-1]
            if self.pool.counts[tail] > 1:
                (own,) = self.pool.take(1)
                self.pool.release([tail])
                progress.blocks = [*progress.blocks[:-1], own]
                copies.append(BlockCopy(tail, own))

    def _admit(self, now: float) -> Progress | None:
        """The next request steps on, if there is a seat and its known tokens fit."""
        progress = self.preempted.first() or self.waiting.first()
        if progress is None or len(self.running) + 1 + len(progress.siblings) > self.limits.max_running:
            return None
        if progress.num_pending:  # preempted with a token on its way: wait for its value
            return None
        request, size, known = progress.request, self.pool.block_size, len(progress.tokens)
        # The last known token is always computed: its logits are what the next one is sampled from.
        limit = known - 1 if self._may_skip_prompt(progress) else 0
        blocks, content = self.pool.find((request.adapter, request.cache_salt), progress.tokens, limit)
        num_new = -(-known // size) - len(blocks)
        # A spare block for each running request, or what is admitted now is preempted in a moment.
        if num_new + self.pool.num_idle(blocks) + len(self.running) > self.pool.num_free:
            return None
        self.pool.share(blocks)
        progress.num_computed = len(blocks) * size
        progress.num_published, progress.content = len(blocks), content
        progress.blocks = blocks + self.pool.take(num_new)
        (self.preempted if progress.state is State.PREEMPTED else self.waiting).remove(progress)
        progress.state = State.RUNNING
        self.running[progress.id] = progress
        self._events.append(Admitted(progress.id, now, min(progress.num_computed, len(request.prompt))))
        return progress

    @staticmethod
    def _may_skip_prompt(progress: Progress) -> bool:
        """Cached prompt tokens are not computed, so they cannot be scored."""
        request = progress.request
        return request.params.prompt_logprobs is None or len(progress.prompt_scores) == len(request.prompt) - 1

    def _chunk(self, progress: Progress, count: int, now: float) -> Chunk:
        start = progress.num_computed
        samples: tuple[Request, ...] = ()
        if start + count == progress.num_known:
            samples = self._fork(progress, now) if progress.siblings else progress.alone
        known, blocks = len(progress.tokens), progress.blocks
        progress.num_computed += count
        if samples:
            progress.num_pending += 1
        return Chunk(progress.request, start, count, progress.tokens, known, blocks, len(blocks), samples)

    def _fork(self, lead: Progress, now: float) -> tuple[Request, ...]:
        """The prompt is complete with this step: the other samples start from its blocks."""
        born, lead.siblings = lead.siblings, []
        num_prompt = len(lead.request.prompt)
        has_shared_tail = num_prompt % self.pool.block_size != 0
        lead.has_shared_tail = has_shared_tail
        for sibling in born:
            self.pool.share(lead.blocks)
            sibling.blocks = list(lead.blocks)
            sibling.num_computed = num_prompt
            sibling.num_pending = 1
            sibling.num_published, sibling.content = lead.num_published, lead.content
            sibling.has_shared_tail = has_shared_tail
            sibling.state, sibling.lead = State.RUNNING, None
            self.running[sibling.id] = sibling
            self._events.append(Forked(sibling.id, now, lead.id))
        return (lead.request, *(sibling.request for sibling in born))

    def _preempt(self, progress: Progress, now: float) -> None:
        del self.running[progress.id]
        self._events.append(Preempted(progress.id, now, progress.num_computed))
        self._give_back(progress)
        progress.num_preempted += 1
        progress.state = State.PREEMPTED
        self.preempted.push(progress, (progress.arrival,))

    def _give_back(self, progress: Progress) -> None:
        self.pool.release(progress.blocks)
        progress.blocks = []
        progress.num_computed = progress.num_published = 0
        progress.has_shared_tail = False

    # Results.

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        """Takes in what a step produced. Plans are committed in the order they were issued."""
        tokens = iter(result.tokens)
        size = self.pool.block_size
        for chunk in plan.chunks:
            request, end = chunk.request, chunk.start + chunk.count
            progress = self.live.get(request.id)
            if progress is not None:
                if end // size > progress.num_published and progress.blocks is chunk.blocks:
                    self._publish(progress, end // size)
                if request.params.prompt_logprobs is not None and chunk.start < len(request.prompt):
                    self._score_prompt(progress, chunk, result, now)
            for sample in chunk.samples:
                token = next(tokens)
                progress = self.live.get(sample.id)
                if progress is None:
                    continue  # ended while this step was under way
                progress.num_pending -= 1
                if sample.id in result.failed:
                    self._end(progress, FinishReason.ERROR, result.failed[sample.id], now)
                else:
                    self._advance(progress, token, result, now)

    def _advance(self, progress: Progress, token: int, result: StepResult, now: float) -> None:
        request, tokens = progress.request, progress.tokens
        tokens.append(token)
        finish = None
        if token in request.stop_ids and progress.num_output >= request.params.min_tokens:
            finish = FinishReason.STOP
        elif len(tokens) == progress.limit:
            finish = FinishReason.LENGTH
        score = result.scores.get(request.id) if result.scores else None
        self._events.append(Token(request.id, now, token, score, finish))
        if finish is not None:
            self._forget(progress)

    def _publish(self, progress: Progress, num_full: int) -> None:
        size = self.pool.block_size
        if not self.pool.has_prefix_index:
            return
        if progress.num_published == 0:
            progress.content = (progress.request.adapter, progress.request.cache_salt)
        for i in range(progress.num_published, num_full):
            tokens = tuple(progress.tokens[i * size : (i + 1) * size])
            progress.content = self.pool.publish(progress.blocks[i], progress.content, tokens)
        progress.num_published = num_full

    def _score_prompt(self, progress: Progress, chunk: Chunk, result: StepResult, now: float) -> None:
        """Collects the scores of the prompt; parts computed again after a preemption are not counted twice."""
        scores, last = progress.prompt_scores, len(progress.request.prompt) - 1
        is_new = len(scores) < last or (last == 0 and progress.num_output == 0)
        scores.extend(result.prompt_scores.get(progress.id, ())[len(scores) - chunk.start :])
        if is_new and len(scores) == last:
            self._events.append(PromptScored(progress.id, now, tuple(scores)))

    def _end(self, progress: Progress, finish: FinishReason, message: str, now: float) -> None:
        self._events.append(Finished(progress.id, now, finish, message))
        self._forget(progress)
        if progress.siblings:  # the next sample computes the prompt in its place
            heir, *others = progress.siblings
            heir.state, heir.lead = State.WAITING, None
            _attach(heir, others)
            self.waiting.push(heir, self.policy.rank(heir))

    def _forget(self, progress: Progress) -> None:
        self._give_back(progress)
        if progress.state is State.RUNNING:
            del self.running[progress.id]
        elif progress.state is State.WAITING:
            self.waiting.remove(progress)
        elif progress.state is State.PREEMPTED:
            self.preempted.remove(progress)
        del self.live[progress.id]


def _attach(lead: Progress, siblings: list[Progress]) -> None:
    lead.siblings = siblings
    for sibling in siblings:
        sibling.state, sibling.lead = State.UNBORN, lead
