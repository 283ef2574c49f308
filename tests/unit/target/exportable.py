"""Networks of the kinds that people export: attention, norms, recurrent layers, sound, functions, gradient modes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

SHAPE = (3, 8, 8)


class Vision(nn.Module):
    """A small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.norm, self.head = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16), nn.Linear(16, 5)
        self.token, self.place = nn.Parameter(torch.rand(1, 1, 16)), nn.Parameter(torch.rand(1, 5, 16))
        layer = lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)  # noqa: E731
        self.blocks = nn.ModuleList(layer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Attention(nn.Module):
    """torch's own attention beside one by hand with a mask, and einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.project, self.head, self.drop = nn.Linear(12, 36), nn.Linear(12, 12), nn.Linear(12, 5), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        x = x.reshape(n, 16, 12)
        q, k, v = self.qkv(x).reshape(n, 16, 3, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, 16, 12)
        mask = torch.ones(16, 16, dtype=torch.bool, device=x.device).tril()
        weights = (q @ k.transpose(-2, -1) / math.sqrt(6)).masked_fill(~mask, float("-inf")).softmax(-1)
        y = y + (weights @ v).transpose(1, 2).flatten(2)
        mean = torch.einsum("ntd,nsd->nts", x, x).mean((1, 2), keepdim=True)
        return self.head(self.drop(self.project(y) + mean).mean(1))


class Norms(nn.Module):
    """Every norm, squeeze and excitation, depthwise convolution, resizing, rolling, cutting."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.depthwise = nn.Conv2d(3, 8, 3, padding="same"), nn.Conv2d(8, 8, 3, groups=8, padding=1, bias=False)
        self.norms = nn.Sequential(
            nn.GroupNorm(2, 8), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.InstanceNorm2d(8, affine=True), nn.LayerNorm([8, 8, 8])
        )
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.SiLU(), nn.Conv2d(2, 8, 1), nn.Sigmoid())
        self.act, self.swish, self.six, self.head = nn.PReLU(), nn.Hardswish(), nn.ReLU6(inplace=True), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms(self.first(x))
        x = self.six(self.act(self.swish(self.depthwise(x * self.squeeze(x)))))
        x = functional.interpolate(x, scale_factor=2, mode="bilinear") + functional.interpolate(x, scale_factor=2)
        one, two = torch.roll(functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1)), 2), 1, 2).chunk(2, 1)
        return self.head(torch.cat([one.clamp(0, 6), two * torch.tanh(two)], 1).mean([2, 3]))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.layers, self.head = kind(12, 7, batch_first=True, bidirectional=True, num_layers=2), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x.reshape(x.shape[0], 16, 12))[0][:, -1])


class Sound(nn.Module):
    """A spectrogram inside the network, with a buffer that is not saved."""

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(32), persistent=False)
        self.conv, self.norm, self.pool, self.head = (
            nn.Conv1d(17, 8, 3, stride=2),
            nn.BatchNorm1d(8),
            nn.MaxPool1d(2),
            nn.Linear(8, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.stft(x.flatten(1), 32, 16, window=self.window, return_complex=True).abs()
        return self.head(self.pool(functional.relu(self.norm(self.conv(spectrum.clamp_min(1e-5).log())))).amax(-1))


class Modes(nn.Module):
    """Parts without gradients and without autocast, and sizes that are calculated."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Linear(12, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        with torch.no_grad():
            x = self.embed(x.reshape(n * 16, 12) * 2)
        with torch.autocast("cpu", enabled=False):
            x = x.reshape(n, 16, 16) * 1.5
        return self.head(self.layer(x).mean(1))


class Tied(nn.Module):
    """Embeddings, a module that returns two tensors, a weight used twice, a module under an odd name."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.attend, self.head = (
            nn.Embedding(16, 12),
            nn.MultiheadAttention(12, 3, batch_first=True),
            nn.Linear(12, 5),
        )
        self.more = nn.ModuleDict({"3x3-a": nn.Linear(12, 12)})
        self.act = nn.Softplus()

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(-1, 16, 12) + self.place(torch.arange(16))
        y, weights = self.attend(x, x, x, need_weights=True)
        x = self.act(self.more["3x3-a"](x + y))
        return self.head(x.max(1)[0]) + weights.mean() + functional.linear(x.std(1), self.head.weight)


class Twice(nn.Module):
    """Modules called twice, one of them in different ways."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor, times: int) -> tuple[Tensor, Tensor]:
            return self.conv(x) * times, self.conv(x) + times

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.head, self.scaled = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Linear(12, 5), Twice.Scaled()

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv(functional.max_pool2d(self.act(self.conv(x)), 2)))
        one, two = self.scaled(x, 1)
        three, _ = self.scaled(x, 2)
        return self.head(functional.max_pool2d(one + two + three, 2).flatten(1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vision": Vision, "attention": Attention, "norms": Norms, "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU), "sound": Sound, "modes": Modes, "tied": Tied, "twice": Twice,
}  # fmt: skip


def save(module: nn.Module, path: Path, shape: tuple[int, ...] = SHAPE, *, way: str = "plain") -> Path:
    """Export with a dynamic batch; ways: plain, strict (traced by dynamo), core (decomposed to fewer operators)."""
    x = torch.rand(3, *shape)
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=way == "strict")
    torch.export.save(program.run_decompositions() if way == "core" else program, path)
    return path
