"""What the largest step and captured ones take of a GPU, reckoned from shapes; `measure` finds it out by doing it.

For the triton kernels, which keep few things between two of them: the widest moments of a layer are attention and the
MLP, and after the last layer the logits, a copy of these for scores, and their log-probabilities.
"""

from chairlift.config.model import ModelConfig
from chairlift.core.limits import Limits
from chairlift.runner.cuda.ladder import ladder
from chairlift.runner.cuda.layout import NUM_COLUMNS
from chairlift.runner.cuda.tiling import tiling
from chairlift.runner.measure import NUM_GRAPHS, Footprint, largest_count

_MIB = 2**20
_MAX_PENALISED = 64  # rows whose tokens are counted at once
# Of the libraries, once they have been used: their code on the device, and what they keep to work with.
_LIBRARIES = 128 * _MIB
_GRAPH_LAYER = 64 * 2**10  # of a captured step, for each layer


def reckon(config: ModelConfig, limits: Limits, itemsize: int, room: int) -> Footprint:
    """As `measure` does: a step that takes more than half of the room is halved."""
    num_tokens = largest_count(limits)
    while num_tokens > 1 and activation_bytes(config, limits, num_tokens, itemsize) > room // 2:
        num_tokens //= 2
    activations = activation_bytes(config, limits, num_tokens, itemsize)
    return Footprint(activations, _graph_bytes(config, limits, num_tokens, itemsize), num_tokens)


def activation_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """All that is in use after a step of so many tokens and was not before the runner was made."""
    return step_bytes(config, limits, num_tokens, itemsize) + _kept_bytes(config, limits) + _LIBRARIES


def step_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """Of a step at the end of the context, with as many samples as may share it."""
    num_samples = min(limits.max_running, num_tokens)
    layer, widest = _layer_bytes(config, limits, num_tokens, num_samples, itemsize)
    row = 4 * config.vocab_size
    # Logits, the raw ones, log-probabilities; which of them are above the token's is a byte each.
    sampling = num_tokens * config.hidden_size * itemsize + num_samples * (3 * row + config.vocab_size)
    # What is freed is taken again for what fits into it.
    return max(layer, sampling) if num_samples * row <= widest else layer + 3 * num_samples * row


def _layer_bytes(
    config: ModelConfig, limits: Limits, num_tokens: int, num_decodes: int, itemsize: int
) -> tuple[int, int]:
    """At the widest moment of a layer, and the largest single piece."""
    hidden, q = config.hidden_size, config.num_heads * config.head_dim
    qkv = q + 2 * config.num_kv_heads * config.head_dim
    has_groups = config.num_heads != config.num_kv_heads
    cut = tiling(num_decodes, 1 << (limits.max_model_len - 1).bit_length(), has_groups)
    parts = 4 * num_decodes * config.num_heads * cut.num_splits * (config.head_dim + 2) * (cut.num_splits > 1)
    attention = num_tokens * (2 * hidden + qkv + 2 * q) * itemsize + parts
    mlp = num_tokens * (2 * hidden + 3 * config.intermediate_size) * itemsize
    return max(attention, mlp), max(parts, num_tokens * max(qkv, 2 * config.intermediate_size) * itemsize)


def _kept_bytes(config: ModelConfig, limits: Limits) -> int:
    """What the runner holds all the time."""
    tables = 4 * (2 * limits.max_running + 16) * -(-limits.max_model_len // limits.block_size)
    most = ladder(limits.max_running)[-1]  # tokens of a captured step
    columns = 4 * NUM_COLUMNS * max(limits.max_step_tokens, most)
    return tables + columns + 4 * (most + _MAX_PENALISED) * config.vocab_size


def _graph_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """The largest captured step keeps its memory, and the others share it."""
    count = min(limits.max_running, num_tokens, ladder(limits.max_running)[-1])
    layer, _ = _layer_bytes(config, limits, count, count, itemsize)
    logits = count * (4 * config.vocab_size + 2 * config.hidden_size * itemsize)
    return layer + logits + (NUM_GRAPHS + 1) * config.num_layers * _GRAPH_LAYER
