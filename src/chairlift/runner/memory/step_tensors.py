"""The tensors of a step by their sizes, in the order in which they come and go on a GPU with the triton kernels.

It follows `Decoder.through_layers`, `Layer.feed_forward`, `CudaOps` and `CudaSampler`, without the tensors of a few
numbers a token.
"""

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.mixers.mixer import MixerSpec
from chairlift.models.spec import ExpertsSpec, LayerSpec, ModelConfig
from chairlift.runner.cuda.sampling.rows import MAX_PENALISED
from chairlift.runner.cuda.step.graph_key import GraphKey
from chairlift.runner.memory.torch_memory import Piece, TorchMemory

_FLOAT = 4  # bytes


def take_step(memory: TorchMemory, config: ModelConfig, key: GraphKey, itemsize: int) -> None:
    """A step up to its logits, which are free then, as it is captured."""
    memory.free(_Step(memory, config, key, itemsize).logits())


def take_sampled_step(memory: TorchMemory, config: ModelConfig, key: GraphKey, itemsize: int, num_samples: int) -> None:
    """One of which so many samples are scored and penalised: the counts of tokens stay."""
    logits = _Step(memory, config, key, itemsize).logits()
    width = _FLOAT * config.vocab_size
    raw = memory.take(num_samples * width)
    memory.take(MAX_PENALISED * width)
    memory.free(logits, raw, memory.take(num_samples * width))  # their logarithms


class _Step:
    def __init__(self, memory: TorchMemory, config: ModelConfig, key: GraphKey, itemsize: int) -> None:
        self._memory = memory
        self._config = config
        self._key = key
        self._itemsize = itemsize
        self._num_rows = key.num_tokens
        self._residual = self._hidden()

    def logits(self) -> Piece:
        x = self._hidden()
        brought = self._brought() if self._config.token_width else None
        for left, layer in zip(reversed(range(self._config.num_layers)), self._config.layers, strict=True):
            x = self._normed(x, layer.has_norm_before)
            beside = x if layer.is_parallel else None
            x = self._mixed(x, layer.mixer, beside)
            if self._key.is_cut and not left:
                x, beside = self._cut(x, layer.mixer, beside)
            x = self._in_place_of(x, self._hidden())
            x = self._normed(x, layer.has_norm_before and not layer.is_parallel)
            x = self._in_place_of(x, self._fed_forward(layer))
            if beside is not None:
                self._memory.free(beside)
            if brought is not None:
                x = self._normed(x, has_norm=False)
                x = self._in_place_of(self._in_place_of(x, self._rows(self._config.token_width)), self._hidden())
        if brought is not None:
            self._memory.free(brought)
        x = self._normed(x, has_norm=True)
        self._memory.free(self._residual)
        if self._num_rows > self._key.num_samples:
            self._num_rows = self._key.num_samples
            x = self._in_place_of(x, self._hidden())
        logits = self._memory.take(_FLOAT * self._num_rows * self._config.vocab_size)
        self._memory.free(x)
        return logits

    def _rows(self, width: int, size: int | None = None) -> Piece:
        return self._memory.take(self._num_rows * width * (size or self._itemsize))

    def _hidden(self) -> Piece:
        return self._rows(self._config.hidden_size)

    def _brought(self) -> Piece:
        """By tokens to all layers."""
        width = self._config.token_width * self._config.num_layers
        context, rows = self._rows(width), self._rows(width)
        self._memory.free(context)
        return rows

    def _in_place_of(self, before: Piece, after: Piece) -> Piece:
        if before is not self._residual:
            self._memory.free(before)
        return after

    def _normed(self, x: Piece, has_norm: bool) -> Piece:
        """Added to the residual, which itself goes on where there is no norm."""
        return self._in_place_of(x, self._hidden() if has_norm else self._residual)

    def _mixed(self, x: Piece, spec: MixerSpec, beside: Piece | None) -> Piece:
        inner = [self._rows(spec.num_inputs), self._rows(spec.num_outputs)]
        out = self._rows(spec.num_outputs)
        if isinstance(spec, AttentionSpec) and (parts := self._key.num_parts * spec.num_heads * _FLOAT):
            inner += [self._memory.take(parts * each) for each in (spec.head_dim, 2)]
        self._memory.free(*inner)
        return out if x is beside else self._in_place_of(x, out)

    def _cut(self, x: Piece, spec: MixerSpec, beside: Piece | None) -> tuple[Piece, Piece | None]:
        """Only rows go on whose logits are wanted."""
        self._num_rows = self._key.num_samples
        before = [x, self._residual, *([] if beside is None else [beside])]
        x, self._residual = self._rows(spec.num_outputs), self._hidden()
        beside = None if beside is None else self._hidden()
        self._memory.free(*before)
        return x, beside

    def _fed_forward(self, layer: LayerSpec) -> Piece:
        spec, y = layer.feed_forward, None
        if width := spec.dense_width:
            gate_up = self._rows(width * (2 if spec.has_gate else 1))
            active = self._in_place_of(gate_up, self._rows(width))
            y = self._in_place_of(active, self._hidden())
        if spec.experts is not None:
            out = self._chosen(spec.experts, spec.width)
            y = out if y is None else self._in_place_of(y, out)
        assert y is not None
        return y

    def _chosen(self, spec: ExpertsSpec, width: int) -> Piece:
        scores, chosen = self._rows(spec.count, _FLOAT), spec.num_chosen
        kept = [self._rows(chosen, _FLOAT) for _ in range(2)]  # experts and weights
        self._memory.free(scores)
        inner = [self._rows(chosen, _FLOAT), self._rows(chosen * width), self._rows(chosen * self._config.hidden_size)]
        out = self._hidden()
        self._memory.free(*kept, *inner)
        return out
