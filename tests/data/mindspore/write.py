"""Writes the checkpoints of this folder with MindSpore itself, 2.10 here: `python write.py` where it is installed.

whole/llama.ckpt           float16, bfloat16 and float32 in parts of 1 KiB, what training leaves, a checksum
whole/llama.yaml           what MindFormers would say of the model
sharded/rank_0..3/         the same weights for two times two devices, the optimizer's share cut too
sharded/strategy/          and how; MindSpore joins them again here, to be sure
expected.safetensors       the weights by MindFormers names, in float32
"""

import shutil
import tempfile
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, save_checkpoint
from mindspore.train import serialization
from mindspore.train.node_strategy_pb2 import ParallelStrategyMap

HERE = Path(__file__).parent
VOCAB, HIDDEN, MLP, HEADS, KV_HEADS = 40, 16, 24, 4, 2
KV = HIDDEN // HEADS * KV_HEADS
YAML = f"""\
model:
  model_config:
    type: LlamaConfig
    batch_size: 1
    seq_length: 64
    hidden_size: {HIDDEN}
    num_layers: 1
    num_heads: {HEADS}
    n_kv_heads: {KV_HEADS}
    vocab_size: {VOCAB}
    multiple_of: 8
    ffn_dim_multiplier: 0.5
    rms_norm_eps: 1.0e-5
    bos_token_id: 1
    eos_token_id: 2
    compute_dtype: "float16"
    param_init_type: "float16"
    extend_method: "None"
    scaling_factor: 1.0
    qkv_concat: False
    use_past: True
    checkpoint_name_or_path: "llama.ckpt"
  arch:
    type: LlamaForCausalLM
"""
# Shape, type, and which axis two devices share.
LAYER = "model.layers.0"
WEIGHTS = {
    "model.tok_embeddings.embedding_weight": ((VOCAB, HIDDEN), mindspore.float32, 0),
    f"{LAYER}.attention.wq.weight": ((HIDDEN, HIDDEN), mindspore.float16, 0),
    f"{LAYER}.attention.wk.weight": ((KV, HIDDEN), mindspore.float16, 0),
    f"{LAYER}.attention.wv.weight": ((KV, HIDDEN), mindspore.bfloat16, 0),
    f"{LAYER}.attention.wo.weight": ((HIDDEN, HIDDEN), mindspore.float16, 1),
    f"{LAYER}.feed_forward.w1.weight": ((MLP, HIDDEN), mindspore.float16, 0),
    f"{LAYER}.feed_forward.w2.weight": ((HIDDEN, MLP), mindspore.float16, 1),
    f"{LAYER}.feed_forward.w3.weight": ((MLP, HIDDEN), mindspore.float16, 0),
    f"{LAYER}.attention_norm.weight": ((HIDDEN,), mindspore.float32, None),
    f"{LAYER}.ffn_norm.weight": ((HIDDEN,), mindspore.float32, None),
    "model.norm_out.weight": ((HIDDEN,), mindspore.float32, None),
    "lm_head.weight": ((VOCAB, HIDDEN), mindspore.float16, 0),
}
OF_TRAINING = {
    f"adam_m.{LAYER}.attention.wq.weight": Tensor(np.ones((2, 2)), mindspore.float32),
    "scale_sense": Tensor(65536.0, mindspore.float32),
}


def main() -> None:
    rng = np.random.default_rng(5)
    weights = {name: Tensor(rng.normal(0, 0.3, shape), dtype) for name, (shape, dtype, _) in WEIGHTS.items()}
    for name in ("whole", "sharded"):
        shutil.rmtree(HERE / name, ignore_errors=True)
        (HERE / name).mkdir()
    (HERE / "whole" / "llama.yaml").write_text(YAML)
    serialization.SLICE_SIZE = 1  # KiB; 512 MiB otherwise
    left = {"epoch_num": 3, "note": "a text"}
    write(weights | OF_TRAINING, HERE / "whole" / "llama.ckpt", append_dict=left, crc_check=True)
    wide = {name: tensor.float() for name, tensor in weights.items()}
    write(wide, HERE / "expected.safetensors", format="safetensors")
    for rank in range(4):
        (HERE / "sharded" / f"rank_{rank}").mkdir()
        write({n: part(t, WEIGHTS[n][2], rank) for n, t in weights.items()}, HERE / f"sharded/rank_{rank}/llama.ckpt")
    (HERE / "sharded" / "strategy").mkdir()
    (HERE / "sharded/strategy/ckpt_strategy_rank_0.ckpt").write_bytes(strategy())
    check_joined(weights)


def listed(weights: dict[str, Tensor]) -> list[dict[str, object]]:
    return [{"name": name, "data": tensor} for name, tensor in weights.items()]


def write(weights: dict[str, Tensor], path: Path, **options: object) -> None:
    save_checkpoint(listed(weights), str(path), **options)
    path.chmod(0o644)


def part(tensor: Tensor, axis: int | None, rank: int) -> Tensor:
    """Devices [2, 2]: the last one's axis cuts the weights, the other one the optimizer's share of the rows."""
    if axis is None:
        return tensor
    model, optimizer = rank % 2, rank // 2
    half = np.split(tensor.float().asnumpy(), 2, axis)[model]
    return Tensor(np.split(half, 2, 0)[optimizer], tensor.dtype)


def strategy() -> bytes:
    found = ParallelStrategyMap(current_stage=0)
    node = found.parallel_strategy_item.add(node_name="Default/MatMul")
    node.parallel_strategys.stage = 0
    node.parallel_strategys.parallel_strategy.add().dim.extend([1, 2])
    for name, (shape, _, axis) in WEIGHTS.items():
        layouts = found.parallel_layout_item.add(param_name=name).parallel_layouts
        layouts.dev_matrix.add().dim.extend([2, 2])
        layouts.tensor_map.add().dim.extend([0 if i == axis else -1 for i in range(len(shape))])
        layouts.param_split_shape.add()
        layouts.indices_offset.add()
        layouts.field = 0
        layouts.opt_weight_shard_step = 0 if axis is None else 2
        layouts.opt_weight_shard_size = 0 if axis is None else 2
    return bytes(found.SerializeToString())


def check_joined(weights: dict[str, Tensor]) -> None:
    file = str(HERE / "sharded/strategy/ckpt_strategy_rank_0.ckpt")
    with tempfile.TemporaryDirectory() as folder:
        mindspore.transform_checkpoints(str(HERE / "sharded"), folder, "joined", file, None)
        joined = mindspore.load_checkpoint(f"{folder}/rank_0/joined0.ckpt")
    for name, tensor in weights.items():
        np.testing.assert_array_equal(joined[name].float().asnumpy(), tensor.float().asnumpy())


if __name__ == "__main__":
    main()
