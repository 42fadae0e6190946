"""A gated delta net by kernels on poisoned pages, and the same in torch's operations in float64."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chairlift.core.plan import Checkpoint, Chunk
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.runner.cuda.recurrent.delta_net import delta_net
from chairlift.runner.cuda.step.states import States, state_words
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.tiles import Memory, Tiles
from chairlift.runner.ops import Norm
from chairlift.runner.torch.ops import TorchOps
from fakes.requests import make_request

C = 16  # tokens of a tile
Text = tuple[Tensor, Tensor]  # what the matrices give: [T, channels + gates], [T, strengths and decays]


@dataclass(frozen=True)
class Layer:
    spec: DeltaNetSpec
    page: tuple[int, int, int]  # of a tensor: heads, tokens, numbers
    dtype: torch.dtype
    device: torch.device

    def mixer(self, wide: torch.dtype = torch.float32) -> DeltaNet:
        """Decays from a token to hundreds."""
        spec, generator = self.spec, torch.Generator().manual_seed(1)
        taps = 0.5 * torch.randn(spec.num_taps, spec.num_channels, generator=generator)
        decay, bias = -torch.logspace(-1.3, 0.9, spec.num_heads), torch.linspace(-3, -1, spec.num_heads)
        gain = torch.rand(spec.value_dim, generator=generator) + 0.5
        taps, decay, bias, gain = (each.to(self.device, wide) for each in (taps, decay, bias, gain))
        return DeltaNet(spec, taps, decay, bias, Norm(gain, 1e-6), Tiles(spec.fixed, spec.num_outputs, wide))

    def text(self, num_tokens: int, seed: int) -> Text:
        spec, generator = self.spec, torch.Generator().manual_seed(seed)
        inputs = torch.randn(num_tokens, spec.num_channels + spec.num_outputs, generator=generator)
        rates = 2 * torch.randn(num_tokens, 2 * spec.num_heads, generator=generator)
        return inputs.to(self.device, self.dtype), rates.to(self.device, self.dtype)

    def expected(self, text: Text) -> Tensor:
        """In float64, but for what is rounded to the model's type between operations."""
        spec, mixer = self.spec, self.mixer(torch.float64)
        inputs, rates = (each.double() for each in text)
        channels, gates = inputs.split((spec.num_channels, spec.num_outputs), dim=1)
        memory = Memory(inputs.new_zeros(spec.fixed.wide), inputs.new_zeros(spec.fixed.narrow))
        rows = torch.nn.functional.pad(torch.cat((channels, rates), dim=1), (0, 0, 0, -len(inputs) % C))
        tiles = []
        for each in rows.split(C):
            out, memory = mixer._tile(each, memory)
            tiles.append(out)
        heads = TorchOps().norm(torch.cat(tiles)[: len(inputs)].view(-1, spec.value_dim), mixer.norm)
        return heads.view(len(inputs), -1) * gates * torch.sigmoid(gates)

    def whole(self, text: Text) -> Tensor:
        return Cache(self, 1).step({0: text}, {0: (0, len(text[0]))})[0]


class Cache:
    """Each request has two halves."""

    def __init__(self, layer: Layer, num_requests: int) -> None:
        spec, itemsize = layer.spec, layer.dtype.itemsize
        page = 2 * torch.Size(layer.page).numel() * itemsize
        self.num_tile = -(-C * spec.fixed.row * itemsize // page)
        self.num_state = -(-(spec.fixed.wide * 4 + spec.fixed.narrow * itemsize) // page)
        width = 2 * (self.num_tile + self.num_state)
        order = torch.randperm((num_requests + 1) * width + 8, generator=torch.Generator().manual_seed(2))
        self.tables = order[: num_requests * width].view(num_requests, width).int().to(layer.device)
        self.spare = order[num_requests * width :].tolist()
        shape = (len(order), *layer.page)
        self.state = tuple(torch.full(shape, torch.nan, dtype=layer.dtype, device=layer.device) for _ in "kv")
        self.mixer, self.device = layer.mixer(), layer.device

    def step(self, texts: dict[int, Text], cuts: dict[int, tuple[int, int]], *further: Checkpoint) -> dict[int, Tensor]:
        """Tokens of some texts, from and to -> their rows."""
        inputs, rates = (torch.cat([texts[id][part][slice(*cuts[id])] for id in cuts]) for part in (0, 1))
        chunks = [
            Chunk(make_request(id, [1]), low, high - low, (), 0, ((),), 0, ()) for id, (low, high) in cuts.items()
        ]
        counts = np.array([chunk.count for chunk in chunks], np.int32)
        rows = np.repeat(np.array(list(cuts), np.int32), counts)
        words = state_words(chunks, counts, rows, further, C)
        spans = np.concatenate((words.spans, np.zeros((1, words.spans.shape[1]), np.int32)))  # with padding
        units = np.concatenate((words.units, np.full((1, 2), -1, np.int32)))
        writes = np.zeros((len(further) + 1, 1 + self.num_state), np.int32)
        writes[: len(further)] = words.writes.reshape(-1, 1 + self.num_state)
        on_device = (torch.from_numpy(each).to(self.device) for each in (spans, units, writes))
        states = States(*on_device, 0, self.num_tile, self.num_state, words.is_single)
        out = delta_net(inputs, rates, self.mixer, self.state, self.tables, states)
        return dict(zip(cuts, out.split(counts.tolist()), strict=True))
