"""How large a model's weights are, known before any of them is read."""

from chairlift.config.model import ModelConfig


def weight_bytes(config: ModelConfig, itemsize: int, layer_itemsize: int) -> int:
    """`layer_itemsize`: of the matrices of layers, which may be kept in another type than all else."""
    hidden, head_dim = config.hidden_size, config.head_dim
    q_rows, qkv_rows = config.num_heads * head_dim, (config.num_heads + 2 * config.num_kv_heads) * head_dim
    matrices = hidden * (qkv_rows + q_rows + 3 * config.intermediate_size)
    vectors = 2 * hidden + config.has_qkv_bias * qkv_rows + config.has_qk_norm * 2 * head_dim
    ends = config.vocab_size * hidden * (1 if config.is_tied else 2) + hidden
    return config.num_layers * (matrices * layer_itemsize + vectors * itemsize) + ends * itemsize


def num_parameters(config: ModelConfig) -> int:
    return weight_bytes(config, 1, 1)
