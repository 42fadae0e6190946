"""GPU memory of the largest step and of captured graphs, estimated from shapes; `measure.py` measures it.

For the triton kernels. Torch takes memory in pieces as large as the tensors that need them, keeps them, cuts smaller
tensors from free ones and never joins two. So all pieces count for which no earlier one had room:

    hidden x 4   the residual, what is added to it, normed rows, queries or attention outputs
    qkv, parts of attention
    inner x 2    gate and up, and
    inner        their product, each if it is larger than qkv, whose piece is free by then
    logits x 3   with a copy for scores, and log-probabilities: each that fits none of the free pieces
"""

from chairlift.config.model import ModelConfig
from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.step.columns import NUM_COLUMNS
from chairlift.runner.cuda.step.graph_key import ladder
from chairlift.runner.memory.measure import NUM_GRAPHS, Footprint, largest_count

_MIB = 2**20
_SMALL = 22 * _MIB  # torch's pieces for small tensors
# The libraries' code and workspaces on the device after first use. Measured on an H200.
LOADING_CODE = 128 * _MIB
_STEP_CODE = 100 * _MIB
_GRAPH_CODE = 100 * _MIB
_GRAPH_LAYER = 20 * 2**10  # of a captured step, for each layer


def estimate_footprint(config: ModelConfig, limits: Limits, itemsize: int, room: int) -> Footprint:
    """As `measure_footprint`: a step that takes more than half of the room is halved."""
    num_tokens = largest_count(limits)
    while num_tokens > 1 and activation_bytes(config, limits, num_tokens, itemsize) > room // 2:
        num_tokens //= 2
    activations = activation_bytes(config, limits, num_tokens, itemsize)
    return Footprint(activations, _graph_bytes(config, limits, num_tokens, itemsize), num_tokens)


def activation_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """In use after a step of so many tokens, beyond what was before the runner was made."""
    return step_bytes(config, limits, num_tokens, itemsize) + _kept_bytes(config, limits) + _STEP_CODE


def step_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """Of a step at the end of the context with as many samples as may share it."""
    num_samples = min(limits.max_running, num_tokens)
    pieces = _layer_pieces(config, limits, num_tokens, num_samples, itemsize)
    logits = _rounded(4 * num_samples * config.vocab_size)
    num_fitting = sum(piece // logits for piece in pieces)
    return sum(pieces) + max(0, 3 - num_fitting) * logits


def _layer_pieces(config: ModelConfig, limits: Limits, num_tokens: int, num_decodes: int, itemsize: int) -> list[int]:
    """Each piece at its size in the layer that needs most."""
    kinds = []
    for layer in config.kinds_of_layers:
        spec, inner = layer.attention, layer.feed_forward.width
        q = spec.num_heads * spec.head_dim
        qkv = q + 2 * spec.num_kv_heads * spec.head_dim
        tiling = choose_tiling(num_decodes, 1 << (limits.max_model_len - 1).bit_length(), spec.has_groups)
        parts = 4 * num_decodes * spec.num_heads * tiling.num_splits * (spec.head_dim + 2) * (tiling.num_splits > 1)
        widths = (*[max(config.hidden_size, q)] * 4, qkv, 2 * inner * (2 * inner > qkv), inner * (inner > qkv))
        kinds.append((_rounded(parts), *(_rounded(num_tokens * width * itemsize) for width in widths)))
    return [max(pieces) for pieces in zip(*kinds, strict=True)]


def _kept_bytes(config: ModelConfig, limits: Limits) -> int:
    """Held by the runner all the time."""
    tables = 4 * (2 * limits.max_running + 16) * -(-limits.max_model_len // limits.block_size)
    most = ladder(limits.max_running)[-1]  # tokens of a captured step
    columns = 4 * NUM_COLUMNS * max(limits.max_step_tokens, most)
    return max(_SMALL, tables + columns) + _rounded(4 * most * config.vocab_size)


def _graph_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """The largest captured step keeps its memory, and the others share it."""
    count = min(limits.max_running, num_tokens, ladder(limits.max_running)[-1])
    layer = sum(_layer_pieces(config, limits, count, count, itemsize))
    logits = 4 * count * config.vocab_size
    return _GRAPH_CODE + layer + logits + (NUM_GRAPHS + 1) * config.num_layers * _GRAPH_LAYER


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // (2 * _MIB)) * 2 * _MIB
