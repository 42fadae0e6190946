"""From settings and a model's source to a runner that makes vectors or scores, and its limits.

There is no KV cache: the scheduler's blocks are places in a step, one for each running request.
"""

from dataclasses import replace
from hashlib import blake2b

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import RunnerFailed
from chairlift.models.embedding.declared import AnswerTokens, EmbeddingConfig
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.embedding.bodies import DecoderBody, Embedder, EncoderBody
from chairlift.runner.embedding.inputs import Input
from chairlift.runner.embedding.ops import EncoderOps, TorchEncoderOps
from chairlift.runner.embedding.runner import EmbeddingRunner
from chairlift.runner.embedding.weights import EncoderAssembly, NamedAlike
from chairlift.runner.kernels import make_ops, pick_kernels
from chairlift.runner.machine import hardware
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.runner.start.choices import open_tensors
from chairlift.runner.start.load import Loaded
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from chairlift.text.find import load_tokenizer

# Tokens and inputs of a step by default: beyond these a step only takes longer.
_STEP_TOKENS = {"cuda": 16384}
_MAX_RUNNING = {"cuda": 1024}
_TRIED = (1, 17, 40)  # tokens of the inputs that warm up and are fingerprinted


def load_embedder(settings: Settings, source: Source, config: ModelConfig) -> Loaded:
    embedding = config.embedding
    assert embedding is not None
    _refuse(settings, config)
    device = hardware.pick_device(settings.device)
    threads = settings.threads or hardware.num_cpus()
    torch.set_num_threads(threads)
    dtype = hardware.resolve_dtype(settings.dtype, device, config.dtype)
    limits = limits_of(settings, config, embedding, device)
    kernels = _kernels(settings, config, device, dtype)
    try:
        model, is_exact = _model(settings, source, config, embedding, kernels, dtype, device, threads, limits)
        runner = EmbeddingRunner(model, device, is_alone=settings.exact and not is_exact)
        fingerprint = _try_out(model, limits, settings.exact)
    except (RunnerFailed, RuntimeError, MemoryError) as error:
        first = (str(error) or "out of memory").splitlines()[0]
        raise InvalidConfig(f"{source.path}: cannot be run on {device.type}: {first}") from error
    return_freed_memory()
    what = "scores of pairs" if embedding.makes_scores else f"vectors of {embedding.dimensions} numbers"
    name = hardware.dtype_name(dtype)
    return Loaded(runner, limits, name, name, "none", device.type, kernels, threads, fingerprint, makes=what)


def limits_of(settings: Settings, config: ModelConfig, embedding: EmbeddingConfig, device: torch.device) -> Limits:
    """An input has a token after it, which ends its request: so the limit is one more than the longest input."""
    max_len = settings.max_model_len or embedding.max_len
    if max_len > config.max_model_len:
        raise InvalidConfig(
            f"max_model_len {max_len} is more than the model's context of {config.max_model_len}; lower --max-model-len"
        )
    step_tokens = settings.max_step_tokens or max(_STEP_TOKENS.get(device.type, 512), settings.max_running or 1)
    max_running = settings.max_running or min(_MAX_RUNNING.get(device.type, 256), step_tokens)
    return Limits(
        vocab_size=config.vocab_size,
        max_model_len=max_len + 1,
        block_size=max_len + 1,
        num_blocks=max_running,
        max_running=max_running,
        max_step_tokens=step_tokens,
        max_step_prompts=settings.max_step_prompts,
    )


def _refuse(settings: Settings, config: ModelConfig) -> None:
    for name, value, allowed in (
        ("tensor_parallel", settings.tensor_parallel, (1,)),
        ("kv_dtype", settings.kv_dtype, ("auto",)),
        ("quantize", settings.quantize, ("auto", "none")),
        ("kernels", settings.kernels, ("auto", "torch", "native")),
        ("save_logits", settings.save_logits, (None,)),
    ):
        if value not in allowed:
            flag = name.replace("_", "-")
            raise InvalidConfig(f"{name} {value}: not for a model that makes vectors or scores; leave --{flag} out")
    if settings.is_mindspore:
        raise InvalidConfig(f"device {settings.device}: vectors and scores are made on cpu or cuda; use one of these")
    if settings.load_format == "dummy" and config.layers == ():
        raise InvalidConfig("load_format dummy: not for an encoder; leave --load-format out")
    if states := [mixer.name for mixer in config.mixers if mixer.fixed]:
        raise InvalidConfig(
            f"task: {config.architecture} has layers of {states[0]}, which make no vectors or scores yet"
        )


def _kernels(settings: Settings, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str:
    """Native on a CPU; on a GPU torch's."""
    if device.type != "cpu":
        return "torch"
    encoder = config.embedding.encoder if config.embedding is not None else None
    layers = config.layers if encoder is None else encoder.layers
    return pick_kernels(settings.kernels, device, dtype, replace(config, layers=layers))  # type: ignore[arg-type]


def _model(
    settings: Settings, source: Source, config: ModelConfig, embedding: EmbeddingConfig, kernels: str,
    dtype: torch.dtype, device: torch.device, threads: int, limits: Limits,
) -> tuple[Embedder, bool]:  # fmt: skip
    """And whether an input's bits are its own."""
    max_len = limits.max_model_len
    if embedding.encoder is None:
        ops = make_ops(kernels, threads)  # where these are not exact, inputs are computed one by one
        tensors = open_tensors(settings, source, config, dtype, device, threads)
        decoder = build_model(_named(config, tensors.names), ops, tensors, dtype, device, max_len)
        answer = None if embedding.answer is None else _token_ids(settings, source, embedding.answer, config.vocab_size)
        return DecoderBody(embedding, decoder, device, answer), kernels == "native"
    encoder_ops = _encoder_ops(kernels, threads, settings.exact)
    names = embedding.encoder.names
    own = (*names.redundant, "classifier", "head.") if embedding.encoder.head is not None else names.redundant
    alike = NamedAlike(HfTensors(source.folder), names.prefix, own)
    assembly = EncoderAssembly(config, embedding.encoder, encoder_ops, alike, dtype, device, max_len)
    encoder, head = assembly.build()
    # Torch's activations may have other bits among others.
    is_exact = head is None and all(layer.activation == "gelu" for layer in embedding.encoder.layers)
    return EncoderBody(embedding, encoder, head, device), encoder_ops.is_exact and is_exact


def _named(config: ModelConfig, stored: object) -> ModelConfig:
    """Files of models without a head leave the first part of names out."""
    names = config.names
    bare = {name: getattr(names, name).removeprefix("model.") for name in ("embedding", "norm", "layer")}
    is_bare = f"{bare['embedding']}.weight" in stored  # type: ignore[operator]
    return replace(config, names=replace(names, **bare)) if is_bare else config


def _encoder_ops(kernels: str, threads: int, exact: bool) -> EncoderOps:
    if kernels == "native":
        from chairlift.runner.native.encoder import NativeEncoderOps

        return NativeEncoderOps(threads, exact)
    return TorchEncoderOps()


def _token_ids(settings: Settings, source: Source, answer: AnswerTokens, vocab_size: int) -> tuple[int, int]:
    found = []
    for token in (answer.true, answer.false):
        if isinstance(token, int):
            if token >= vocab_size:
                raise InvalidConfig(f"{source.folder}: token id {token} of an answer is not below {vocab_size}")
            found.append(token)
            continue
        ids = load_tokenizer(source, settings.tokenizer).encode(token, add_special=False)
        if len(ids) != 1:
            raise InvalidConfig(f"task rerank: {token!r} is not one token of this model; use a reranker")
        found.append(ids[0])
    return found[0], found[1]


def _try_out(model: Embedder, limits: Limits, is_exact: bool) -> str | None:
    """Touches all weights; the fingerprint of an exact model."""
    lengths = [min(length, limits.max_model_len - 1) for length in _TRIED]
    inputs = [Input([(997 * i + 1) % limits.vocab_size for i in range(length)]) for length in lengths]
    with torch.inference_mode():
        made = [model.vectors([each]).to("cpu", torch.float32).numpy().tobytes() for each in inputs]
    return blake2b(b"".join(made), digest_size=4).hexdigest() if is_exact else None
