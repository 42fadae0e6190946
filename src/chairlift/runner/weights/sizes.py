"""How large a model's weights are, known before any of them is read."""

from chairlift.config.model import ModelConfig


def weight_bytes(config: ModelConfig, itemsize: int, layer_itemsize: int) -> int:
    """`layer_itemsize`: of the matrices of layers, which may be kept in another type than all else."""
    qkv_rows = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    vectors = 2 * config.hidden_size + config.has_qkv_bias * qkv_rows + config.has_qk_norm * 2 * config.head_dim
    rest = config.num_layers * vectors + config.hidden_size + ends_size(config)
    return layers_size(config) * layer_itemsize + rest * itemsize


def layers_size(config: ModelConfig) -> int:
    """Numbers in the matrices of layers."""
    heads = 2 * config.num_heads + 2 * config.num_kv_heads
    return config.num_layers * config.hidden_size * (heads * config.head_dim + 3 * config.intermediate_size)


def ends_size(config: ModelConfig) -> int:
    """Numbers in the embedding and the head."""
    return config.vocab_size * config.hidden_size * (1 if config.is_tied else 2)


def num_parameters(config: ModelConfig) -> int:
    return weight_bytes(config, 1, 1)
