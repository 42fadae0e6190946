"""What a step of requests asks of its tokens, made short."""

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.asks import Asks, StepAsks
from chairlift.runner.cuda.layout import lay_out
from chairlift.runner.cuda.rows import Rows


def asks_of(requests: list[Request], length: int) -> StepAsks:
    """Each computes the last of this many tokens; row i of the logits is request i's, and so is row i of the device."""
    blocks = [BlockId(0)] * length
    chunks = [Chunk(r, length - 1, 1, range(length), length, blocks, length, (r,)) for r in requests]
    layout = lay_out(StepPlan(1, tuple(chunks), (), len(chunks), len(chunks)), Rows(len(requests)), 1)
    asks = Asks(len(requests)).of(layout)
    assert asks is not None
    return asks
