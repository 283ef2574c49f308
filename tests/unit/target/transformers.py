"""Small networks built like a ViT, a Swin, a ConvNeXt and an MLP-Mixer, for inputs of 3x16x16 and four classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, PATCH, TOKENS = 12, 3, 4, 16


class MLP(nn.Module):
    """Two dense layers with a GELU between them, a module or a function."""

    def __init__(self, width: int, hidden: int, *, functional: bool = False) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.act = None if functional else nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc1(x)
        return self.fc2(F.gelu(hidden) if self.act is None else self.act(hidden))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.proj(heads.transpose(1, 2).reshape(n, tokens, WIDTH))


class Block(nn.Module):
    def __init__(self, *, functional: bool = False) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = MLP(WIDTH, 2 * WIDTH, functional=functional)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, *, functional: bool = False) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.place = nn.Parameter(torch.randn(1, TOKENS + 1, WIDTH))
        self.blocks = nn.Sequential(Block(functional=functional), Block(functional=functional))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1) + self.place
        return self.head(self.norm(self.blocks(tokens))[:, 0])  # type: ignore[no-any-return]


class Window(Block):
    """A block whose attention stays inside windows of 2x2 places: its rows are windows."""

    def forward(self, x: Tensor) -> Tensor:  # (n, 4, 4, width)
        n = x.shape[0]
        windows = self.norm1(x).reshape(n, 2, 2, 2, 2, WIDTH).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, WIDTH)
        joined = self.attn(windows).reshape(n, 2, 2, 2, 2, WIDTH).permute(0, 1, 3, 2, 4, 5).reshape(n, 4, 4, WIDTH)
        x = x + joined
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, WIDTH, PATCH, PATCH), nn.Sequential(Window(), Window())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        places = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.norm(places).mean((1, 2)))  # type: ignore[no-any-return]


class Stage(nn.Module):
    """A block of a ConvNeXt: a convolution by channel, then an MLP over channels, which lie last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.norm, self.mlp = nn.LayerNorm(WIDTH), MLP(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(self.conv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stages = nn.Conv2d(3, WIDTH, PATCH, PATCH), nn.Sequential(Stage(), Stage())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.stages(self.stem(x)).mean((2, 3))))  # type: ignore[no-any-return]


class Mix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.tokens = nn.LayerNorm(WIDTH), MLP(TOKENS, 10)
        self.norm2, self.channels = nn.LayerNorm(WIDTH), MLP(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, WIDTH, PATCH, PATCH), nn.Sequential(Mix(), Mix())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patches(x).flatten(2).transpose(1, 2))).mean(1))  # type: ignore[no-any-return]


NETWORKS = {
    "vit": ViT, "vit with functions": lambda: ViT(functional=True), "swin": Swin, "convnext": ConvNeXt, "mixer": Mixer,
}  # fmt: skip


def network(name: str) -> nn.Module:
    """The same weights each time; no class is the usual answer."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module = NETWORKS[name]().eval()
        logits = module(torch.from_numpy(pictures(64)).float() / 255)
        module.head.weight /= logits.std(0, keepdim=True).T
        module.head.bias.copy_((module.head.bias - logits.mean(0)) / logits.std(0))
    return module


def pictures(count: int) -> np.ndarray:
    """Noise around a colour of its own each."""
    random = np.random.default_rng(0)
    colours, noise = random.uniform(30, 225, (count, 3, 1, 1)), random.normal(0, 20, (count, 3, 16, 16))
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


def build() -> nn.Module:
    """For `py:`."""
    return network("vit")
