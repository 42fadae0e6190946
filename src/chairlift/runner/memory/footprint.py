"""GPU memory of the largest step and of captured graphs, estimated from shapes; `measure.py` measures it.

For the triton kernels. What their tensors take is found by having torch's rules give and take back memory for each
(`step_tensors.py`); the rest was measured on an H200.
"""

from chairlift.core.limits import Limits
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step.columns import NUM_COLUMNS, TILE_WIDTH
from chairlift.runner.cuda.step.graph_key import GraphKey, GraphKeys, ladder, max_samples, max_tiles
from chairlift.runner.memory.measure import Footprint, graph_price, largest_count, num_fitting, num_priced, with_step
from chairlift.runner.memory.step_tensors import take_sampled_step, take_step
from chairlift.runner.memory.torch_memory import MIB, TorchMemory, rounded

_SMALL = 22 * MIB  # torch's pieces for small tensors
# The libraries' code and workspaces on the device after first use.
LOADING_CODE = 128 * MIB
_STEP_CODE = 62 * MIB
_GRAPH_CODE = 108 * MIB
_GRAPH, _GRAPH_LAYER = 512 * 2**10, 16 * 2**10  # of a captured step with prompts, and of each of its layers
_ADAPTED_LAYER = 28 * 2**10  # the same with adapters, by its number of kernels: not measured


def estimate_footprint(config: ModelConfig, limits: Limits, itemsize: int, room: int) -> Footprint:
    """As `measure_footprint`: a step that takes more than half of the room is halved."""
    num_tokens = largest_count(limits)
    while num_tokens > 1 and activation_bytes(config, limits, num_tokens, itemsize) > room // 2:
        num_tokens //= 2
    activations = activation_bytes(config, limits, num_tokens, itemsize)
    each = _graph_bytes(config, limits)
    num_graphs = num_fitting(room, each, limits)
    shared = _shared_bytes(config, with_step(limits, num_tokens), itemsize)
    return Footprint(activations, shared + num_graphs * each, num_tokens, num_graphs)


def activation_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """In use after a step of so many tokens, beyond what was before the runner was made."""
    return step_bytes(config, limits, num_tokens, itemsize) + _kept_bytes(config, limits) + _STEP_CODE


def step_bytes(config: ModelConfig, limits: Limits, num_tokens: int, itemsize: int) -> int:
    """Of a step at the end of the context with as many samples as may share it."""
    memory, num_samples = TorchMemory(), min(limits.max_running, num_tokens)
    take_sampled_step(memory, config, _largest_key(config, with_step(limits, num_tokens)), itemsize, num_samples)
    return memory.taken


def _graph_bytes(config: ModelConfig, limits: Limits) -> int:
    """Of one more captured step, as it would be measured."""
    layer = _ADAPTED_LAYER if limits.num_adapter_slots else _GRAPH_LAYER
    num_steps = num_priced(limits)
    return graph_price(rounded(num_steps * (_GRAPH + layer * config.num_layers)), num_steps)


def _kept_bytes(config: ModelConfig, limits: Limits) -> int:
    """Held by the runner all the time."""
    width, num_groups = -(-limits.max_model_len // limits.block_size), limits.pages.per_block - 1
    tables = 4 * (2 * limits.max_running + 16) * width * (1 + num_groups)
    most = max(limits.max_step_tokens, ladder(limits)[-1])
    words = (NUM_COLUMNS + num_groups) * most + TILE_WIDTH * max(most, max_tiles(most))
    return max(_SMALL, tables + 4 * words) + rounded(4 * max_samples(limits) * config.vocab_size)


def _shared_bytes(config: ModelConfig, limits: Limits, itemsize: int) -> int:
    """What captured steps share: the memory of the largest. Its logits are copied to those that the runner keeps."""
    memory = TorchMemory()
    take_step(memory, config, _largest_key(config, limits), itemsize)
    return _GRAPH_CODE + memory.taken


def _largest_key(config: ModelConfig, limits: Limits) -> GraphKey:
    has_groups = any(spec.has_groups for spec in config.attentions)
    return GraphKeys(limits, has_groups, exact=False).largest
