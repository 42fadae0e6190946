"""GPU memory of the largest step and of captured graphs, estimated from shapes; `measure.py` measures it.

For the triton kernels. Torch takes memory in pieces as large as the tensors that need them, keeps them, cuts smaller
tensors from free ones and never joins two. So all pieces count for which no earlier one had room:

    hidden x 4   the residual, what is added to it, normed rows, queries or attention outputs; one more where branches
                 are in parallel
    qkv, parts of attention
    inner x 2    gate and up, and
    inner        their product, each if it is larger than qkv, whose piece is free by then
    inner, hidden   of every choice of experts, where there are any
    logits x 3   with a copy for scores, and log-probabilities: each that fits none of the free pieces
    logits       as the head's product gives them, if they fit no piece
"""

from chairlift.config.model import ModelConfig
from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.step.columns import NUM_COLUMNS, TILE_WIDTH
from chairlift.runner.cuda.step.graph_key import ladder, max_samples, max_tiles
from chairlift.runner.memory.measure import Footprint, largest_count, num_fitting, with_step

_MIB = 2**20
_SMALL = 22 * _MIB  # torch's pieces for small tensors
# The libraries' code and workspaces on the device after first use. Measured on an H200.
LOADING_CODE = 128 * _MIB
_STEP_CODE = 100 * _MIB
_GRAPH_CODE = 100 * _MIB
_GRAPH_LAYER = 34 * 2**10  # of a captured step with prompts, for each layer
_ADAPTED_LAYER = 60 * 2**10  # the same with adapters, by its number of kernels: not measured


def estimate_footprint(config: ModelConfig, limits: Limits, itemsize: int, room: int) -> Footprint:
    """As `measure_footprint`: a step that takes more than half of the room is halved."""
    num_tokens = largest_count(limits)
    while num_tokens > 1 and activation_bytes(config, limits, num_tokens, itemsize) > room // 2:
        num_tokens //= 2
    activations = activation_bytes(config, limits, num_tokens, itemsize)
    each = config.num_layers * (_ADAPTED_LAYER if limits.num_adapter_slots else _GRAPH_LAYER)
    num_graphs = num_fitting(room, each, limits)
    shared = _shared_bytes(config, with_step(limits, num_tokens), itemsize)
    return Footprint(activations, shared + num_graphs * each, num_tokens, num_graphs)


def activation_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """In use after a step of so many tokens, beyond what was before the runner was made."""
    return step_bytes(config, limits, num_tokens, itemsize) + _kept_bytes(config, limits) + _STEP_CODE


def step_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """Of a step at the end of the context with as many samples as may share it."""
    num_samples = min(limits.max_running, num_tokens)
    return _bytes_with_logits(config, limits, num_tokens, num_samples, itemsize, num_logits=3)


def _bytes_with_logits(
    config: ModelConfig, limits: Limits, num_tokens: int, num_samples: int, itemsize: int, num_logits: int
) -> int:
    pieces = _layer_pieces(config, limits, num_tokens, num_samples, itemsize)
    logits = _rounded(4 * num_samples * config.vocab_size)
    num_free = sum(piece // logits for piece in pieces)
    product = _rounded(itemsize * num_samples * config.vocab_size)
    return sum(pieces) + max(0, num_logits - num_free) * logits + product * (product > max(pieces))


def _layer_pieces(config: ModelConfig, limits: Limits, num_tokens: int, num_decodes: int, itemsize: int) -> list[int]:
    """Each piece at its size in the layer that needs most."""
    kinds = []
    for layer in config.kinds_of_layers:
        spec, inner = layer.attention, layer.feed_forward.dense_width
        q = spec.num_heads * spec.head_dim
        qkv = q + 2 * spec.num_kv_heads * spec.head_dim
        tiling = choose_tiling(num_decodes, 1 << (limits.max_model_len - 1).bit_length(), spec.has_groups)
        parts = 4 * num_decodes * spec.num_heads * tiling.num_splits * (spec.head_dim + 2) * (tiling.num_splits > 1)
        gate_up = inner * (2 if layer.feed_forward.has_gate else 1)
        beside = config.hidden_size * layer.is_parallel
        widths = (*[max(config.hidden_size, q)] * 4, beside, qkv, gate_up * (gate_up > qkv), inner * (inner > qkv))
        num_chosen = layer.feed_forward.experts.num_chosen if layer.feed_forward.experts else 0
        chosen = [num_chosen * width for width in (layer.feed_forward.width, config.hidden_size)]
        widths = (*widths, *(width * (width > qkv) for width in chosen))
        kinds.append((_rounded(parts), *(_rounded(num_tokens * width * itemsize) for width in widths)))
    return [max(pieces) for pieces in zip(*kinds, strict=True)]


def _kept_bytes(config: ModelConfig, limits: Limits) -> int:
    """Held by the runner all the time."""
    width, num_groups = -(-limits.max_model_len // limits.block_size), limits.num_window_groups
    tables = 4 * (2 * limits.max_running + 16) * width * (1 + num_groups)
    most = max(limits.max_step_tokens, ladder(limits)[-1])
    words = (NUM_COLUMNS + num_groups) * most + TILE_WIDTH * max(most, max_tiles(most))
    return max(_SMALL, tables + 4 * words) + _rounded(4 * max_samples(limits) * config.vocab_size)


def _shared_bytes(config: ModelConfig, limits: Limits, itemsize: int) -> int:
    """What captured steps share: the memory of the largest. Its logits are copied to those that the runner keeps."""
    num_tokens = ladder(limits)[-1]
    num_samples = min(num_tokens, max_samples(limits))
    return _GRAPH_CODE + _bytes_with_logits(config, limits, num_tokens, num_samples, itemsize, num_logits=1)


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // (2 * _MIB)) * 2 * _MIB
