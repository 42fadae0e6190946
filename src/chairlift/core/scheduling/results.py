"""What a step's result changes: tokens are appended, full blocks enter the prefix index, finished requests leave."""

from collections.abc import Iterator

from chairlift.core.events import Computed, Embedded, PromptScored, Token
from chairlift.core.ids import RequestId
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.request import FinishReason, Progress, State
from chairlift.core.scheduling.beams import Beams
from chairlift.core.scheduling.predictor import LengthPredictor
from chairlift.core.scheduling.running_set import RunningSet
from chairlift.core.score import TokenScore

_new = tuple.__new__  # a named tuple made without the call of its own constructor takes half the time


class Results:
    def __init__(self, running_set: RunningSet, predictor: LengthPredictor) -> None:
        self._running_set = running_set
        self._tables = running_set.tables
        self._predictor = predictor

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> None:
        live, events, size = self._running_set.live, self._running_set.events, self._tables.pool.block_size
        step, has_index = plan.step, self._tables.pool.has_prefix_index
        tokens, scores = iter(result.tokens), result.scores
        is_rare = bool(result.failed or result.vectors)
        for chunk in plan.chunks[: plan.num_decodes]:
            request, start, _, _, _, _, _, samples, _ = chunk
            progress = live.get(request.id)
            is_plain = progress is not None and len(samples) == 1 and progress.beams is None and not is_rare
            if progress is None or not is_plain or request.params.prompt_logprobs is not None:
                self._commit_chunk(chunk, tokens, result, now)
                continue
            # The common case, spelled out for speed: one more token of a request that decodes.
            if has_index and (start + 1) // size > progress.num_published and progress.table_step <= step:
                self._tables.publish(progress, (start + 1) // size)
            token, text = next(tokens), progress.tokens
            progress.num_pending -= 1
            if token in request.stop_ids or len(text) + 1 == progress.limit:
                self._advance(progress, token, scores.get(request.id), now)
            else:
                text.append(token)
                score = scores.get(request.id) if scores else None
                events.append(_new(Token, (request.id, now, token, score, None)))
        for chunk in plan.chunks[plan.num_decodes :]:
            if chunk.request.id in live and not chunk.drafts:
                events.append(Computed(chunk.request.id, now, chunk.start, chunk.count))
            self._commit_chunk(chunk, tokens, result, now)

    def _commit_chunk(self, chunk: Chunk, tokens: Iterator[int], result: StepResult, now: float) -> None:
        """Take the next tokens of the result as this chunk's."""
        running_set, request = self._running_set, chunk.request
        progress = running_set.live.get(request.id)
        if progress is not None:
            if request.id not in result.failed:  # a NaN may be in any of its blocks
                self._publish(progress, result.step, chunk.start + chunk.count - len(chunk.drafts))
            if request.params.prompt_logprobs is not None and chunk.start < len(request.prompt):
                self._score_prompt(progress, chunk, result, now)
        for sample in chunk.samples:
            token = next(tokens)
            progress = running_set.live.get(sample.id)
            if progress is None:
                continue  # ended while this step was in flight
            if sample.id in result.failed:
                running_set.end(progress, FinishReason.ERROR, result.failed[sample.id], now)
            elif progress.beams is not None:
                if progress.beams.offer(sample.id, result.scores[sample.id].top):
                    self._branch(progress.beams, now)
            else:
                progress.num_pending -= 1
                if sample.id in result.vectors:
                    running_set.events.append(Embedded(sample.id, now, result.vectors[sample.id]))
                self._advance(progress, token, result.scores.get(sample.id), now)
                if chunk.drafts and sample.id in running_set.live:
                    self._accept(progress, chunk, result, now)

    def _accept(self, progress: Progress, chunk: Chunk, result: StepResult, now: float) -> None:
        """Append the tokens that right drafts bring; release the blocks of wrong ones."""
        more = result.more.get(progress.id, ())
        running_set, is_running = self._running_set, progress.state is State.RUNNING
        if more and is_running and running_set.rules.is_serving:
            running_set.rules.served(progress, 0, len(more), now)
        for end, (token, score) in enumerate(more, chunk.start + 2):
            self._publish(progress, result.step, end)
            self._advance(progress, token, score, now)
            if progress.id not in running_set.live:
                return
        if is_running:
            progress.num_computed += len(more)
            self._tables.trim(progress, progress.num_known)

    def _publish(self, progress: Progress, step: int, end: int) -> None:
        """Index the full blocks of the tokens before `end`, unless the block table is newer than this step."""
        num_full = end // self._tables.pool.block_size
        if num_full > progress.num_published and progress.table_step <= step:
            self._tables.publish(progress, num_full)

    def _advance(self, progress: Progress, token: int, score: TokenScore | None, now: float) -> None:
        request, tokens = progress.request, progress.tokens
        tokens.append(token)
        finish = None
        if token in request.stop_ids and progress.num_output >= request.params.min_tokens:
            finish = FinishReason.STOP
        elif len(tokens) == progress.limit:
            finish = FinishReason.LENGTH
        self._running_set.events.append(Token(request.id, now, token, score, finish))
        if finish is not None:
            self._predictor.learn(request.attributes.user, progress.num_output)
            self._running_set.remove(progress, now)

    def end(self, progress: Progress, token: int, now: float) -> None:
        """A steady step brought its last token."""
        self._advance(progress, token, None, now)

    def _score_prompt(self, progress: Progress, chunk: Chunk, result: StepResult, now: float) -> None:
        """Collect the scores of the prompt; those computed again after a preemption are not counted twice."""
        scores, last = progress.prompt_scores, len(progress.request.prompt) - 1
        is_new = len(scores) < last or (last == 0 and progress.num_output == 0)
        scores.extend(result.prompt_scores.get(progress.id, ())[len(scores) - chunk.start :])
        if is_new and len(scores) == last:
            self._running_set.events.append(PromptScored(progress.id, now, scores))

    def _branch(self, beams: Beams, now: float) -> None:
        """Every member of a search has offered its continuations: the best become the next members."""
        live = self._running_set.live
        members = [live[member] for member in beams.members]
        outputs = {m.id: tuple(m.tokens[len(m.request.prompt) :]) for m in members}
        branches = beams.decide(outputs, is_last=len(members[0].tokens) + 1 == members[0].limit)
        if not branches:
            self._end_search(beams, members, now)
            return
        # A member carries its first branch; members without a branch carry the further ones of others.
        stays = {branch.parent: branch for branch in reversed(branches)}
        free = [member for member in members if member.id not in stays]
        texts = {member.id: member.tokens for member in members}
        carriers: list[RequestId] = []
        for branch in branches:
            parent = carrier = live[branch.parent]
            if stays[branch.parent] is not branch:
                carrier = free.pop()
                self._running_set.continue_from(carrier, parent, now)
            carrier.tokens = [*texts[parent.id], branch.token]
            carriers.append(carrier.id)
        for progress in members:
            progress.num_pending = 0
            if progress.state is State.PREEMPTED:
                self._running_set.requeue(progress)
        beams.assign(carriers)

    def _end_search(self, beams: Beams, members: list[Progress], now: float) -> None:
        """Emit the best continuations, each as the tokens of one sample."""
        by_index = sorted(members, key=lambda member: member.request.sample_index)
        for progress in by_index:
            self._running_set.remove(progress, now)
        for progress, ended in zip(by_index, beams.best(by_index[0].request.params.n), strict=False):
            *tokens, last = ended.tokens
            self._running_set.events += [Token(progress.id, now, token) for token in tokens]
            self._running_set.events.append(Token(progress.id, now, last, None, ended.finish))
