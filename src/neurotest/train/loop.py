"""The training loop: checkpointed after every epoch, resumable, with progress and the time left, early stop, mean weights.

The zoo's networks are trained on images, flipped and cropped, and on audio, shifted and with noise.

Equal seed, threads and machine give equal weights; another processor may round differently, so accuracy is what to compare.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from neurotest import rng
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.files import write_bytes
from neurotest.levels import EIGHT, SIXTEEN
from neurotest.zoo.recipes import Recipe


class _Images:
    """A labelled source of 8-bit images, flipped, cropped, lit as the recipe says, or of audio, shifted and with noise.

    A regression value changes its sign in the mirror.
    """

    def __init__(self, source: Source, recipe: Recipe, device: str = "cpu") -> None:
        self.x, self.y = _tensors(source, recipe.images)
        self.recipe, self.device = recipe, device
        self.loss_of = _regression_loss(self.y) if self.y.is_floating_point() else functional.cross_entropy
        self.start(0)

    def __len__(self) -> int:
        return len(self.x)

    def start(self, epoch: int) -> None:
        self.random = rng.stream("train.augment", self.recipe.seed, epoch)

    def ahead(self, module: nn.Module, rows: Tensor) -> None:
        """Images are cut and mirrored batch by batch."""

    def loss(self, module: nn.Module, rows: Tensor) -> Tensor:
        if self.x.dtype == torch.int16:
            inputs = augment_audio(_prepared(self.x[rows]), self.recipe, self.random).to(self.device)
            return self.loss_of(module(inputs), self.y[rows].to(self.device))
        x, y = augment(self.x[rows], self.y[rows], self.recipe, self.random)
        images = _prepared(x.to(self.device))
        if self.recipe.light:
            factors = 1 + self.recipe.light * (2 * torch.from_numpy(self.random.random((len(images), 1, 1, 1))) - 1)
            images = images.mul_(factors.to(images)).clamp_(0, 1)
        images = images.contiguous(memory_format=torch.channels_last) if images.ndim == 4 else images
        return self.loss_of(module(images), y.to(self.device))


def _regression_loss(y: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Squares of small errors and the size of large ones, in spreads of the truth: few frames are far off, and must not lead."""
    spread = float(y.double().std()) or 1.0

    def loss(out: Tensor, truth: Tensor) -> Tensor:
        return functional.smooth_l1_loss(out.flatten() / spread, truth.to(out) / spread)

    return loss


def accuracy(module: nn.Module, source: Source, *, batch: int = 500) -> float:
    """Share of a labelled source that the network gets right."""
    x, y = _tensors(source, None)
    return int((predict(module, x, batch) == y).sum()) / len(x)


def mean_error(module: nn.Module, source: Source, *, batch: int = 500) -> float:
    """How far the answers to a source are from its regression values, on average."""
    x, y = _tensors(source, None)
    with torch.inference_mode():
        answers = torch.cat([module(_prepared(images)).flatten() for images in x.split(batch)])
    return float((answers.double() - y.double()).abs().mean())


def predict(module: nn.Module, x: Tensor, batch: int = 500) -> Tensor:
    with torch.inference_mode():
        return torch.cat([module(_prepared(images)).argmax(1) for images in x.split(batch)])


def _prepared(x: Tensor) -> Tensor:
    """Stored inputs as the zoo's networks take them: images in 0 .. 1, audio in -1 .. 1."""
    levels = SIXTEEN if x.dtype == torch.int16 else EIGHT
    return levels.unit(x) if levels is EIGHT else levels.unit(x).mul_(2).sub_(1)


def _tensors(source: Source, most: int | None) -> tuple[Tensor, Tensor]:
    truth = source.labels if source.quantities is None else source.quantities
    if truth is None:
        raise BadInput("no-labels", "data", f"{source.spec} has no labels: training needs them.")
    index = np.arange(min(len(source), most or len(source)))
    return torch.from_numpy(source.read(index)), torch.from_numpy(truth[index])


def augment(x: Tensor, y: Tensor, recipe: Recipe, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Flips and padded crops, per image, on uint8 batches (n, c, h, w) and their labels (n,)."""
    if recipe.flip:
        mirrored = torch.from_numpy(random.random(len(x)) < 0.5)
        x = torch.where(mirrored.view(-1, 1, 1, 1), x.flip(3), x)
        y = torch.where(mirrored, -y, y) if y.is_floating_point() else y
    if recipe.crop:
        n, _, h, w = x.shape
        padded = functional.pad(x, [recipe.crop] * 4)
        top, left = (torch.from_numpy(random.integers(0, 2 * recipe.crop + 1, n)) for _ in range(2))
        rows = (top[:, None] + torch.arange(h)).view(n, 1, h, 1)
        columns = (left[:, None] + torch.arange(w)).view(n, 1, 1, w)
        x = padded[torch.arange(n).view(n, 1, 1, 1), torch.arange(x.shape[1]).view(1, -1, 1, 1), rows, columns]
    return x, y


def augment_audio(x: Tensor, recipe: Recipe, random: np.random.Generator) -> Tensor:
    """Shifts (silence comes in), another volume and white noise, per clip, on batches (n, 1, samples) in -1 .. 1."""
    n, samples = len(x), x.shape[-1]
    if recipe.crop:
        start = torch.from_numpy(random.integers(0, 2 * recipe.crop + 1, n))
        place = start.view(n, 1, 1) + torch.arange(samples).view(1, 1, -1)
        x = functional.pad(x, (recipe.crop, recipe.crop)).gather(2, place.expand(n, x.shape[1], samples))
    if recipe.gain:
        decibels = random.uniform(-recipe.gain, recipe.gain, (n, 1, 1)).astype(np.float32)
        x = x * torch.from_numpy(10 ** (decibels / 20))
    if recipe.noise is not None:
        decibels = random.uniform(recipe.noise, recipe.noise + 30, (n, 1, 1)).astype(np.float32)
        loud = x.square().mean(dim=(1, 2), keepdim=True).sqrt() * torch.from_numpy(10 ** (-decibels / 20))
        x = x + loud * torch.from_numpy(random.standard_normal(x.shape, dtype=np.float32))
    return x.clamp(-1, 1)


AHEAD = 16  # steps whose inputs are prepared together


@dataclass(frozen=True)
class TrainingStep:
    """Where training stands; `left` is an estimate in seconds."""

    epoch: int
    epochs: int
    done: float  # share of the whole
    loss: float
    left: float


Report = Callable[[TrainingStep], None]
Judge = Callable[[nn.Module], float]  # of a network in eval mode; more is better


class TrainingData(Protocol):
    """What a network is trained on: so many rows an epoch, and the loss of some of them."""

    def __len__(self) -> int: ...

    def start(self, epoch: int) -> None: ...

    def ahead(self, module: nn.Module, rows: Tensor) -> None:
        """What the next steps are about, for what is cheaper to prepare together."""

    def loss(self, module: nn.Module, rows: Tensor) -> Tensor: ...


class Checkpoint(Protocol):
    """Where a checkpoint is kept: a file of a run, or one by its path."""

    def exists(self) -> bool: ...

    def read(self) -> bytes: ...

    def write(self, content: bytes) -> None: ...


def train(
    module: nn.Module,
    source: Source,
    recipe: Recipe,
    *,
    checkpoint: Path | None = None,
    report: Report | None = None,
    device: str = "cpu",
) -> nn.Module:
    """Train `module` on a labelled source by `recipe`; goes on from `checkpoint` if one of the same recipe is there."""
    return Training(module, recipe, checkpoint=checkpoint, device=device).run(source, report)


class Training:
    """One training: the network, its optimiser and learning rate, the epochs done and the seconds they took."""

    def __init__(
        self, module: nn.Module, recipe: Recipe, *, checkpoint: Path | Checkpoint | None = None, device: str = "cpu",
        judge: Judge | None = None,
    ) -> None:  # fmt: skip
        self.module: nn.Module = module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.recipe, self.device, self.judge, self.checkpoint = recipe, device, judge, checkpoint
        self.epoch = 0
        self.seconds = 0.0
        self.mean: dict[str, Tensor] = {}  # of the weights over the steps, where the recipe averages
        self.best: dict[str, Tensor] = {}  # weights of the epoch that was judged best
        self.judged: list[float] = []  # epoch by epoch

    def run(self, source: Source, report: Report | None = None) -> nn.Module:
        """Train on a labelled source to the end and return the network in eval mode."""
        return self.fit(_Images(source, self.recipe, self.device), report)

    def fit(self, lessons: TrainingData, report: Report | None = None) -> nn.Module:
        """Train on anything that has a loss."""
        steps = math.ceil(len(lessons) / self.recipe.batch)
        self.optimiser = _optimiser(self.module, self.recipe)
        self.schedule = _schedule(self.optimiser, self.recipe, steps)
        self._resume()
        with torch.random.fork_rng():
            for epoch in range(self.epoch, self.recipe.epochs):
                if self._waited():
                    break
                self._run_epoch(lessons, epoch, report)
                self.epoch = epoch + 1
                self._look()
                self._save()
        if self.best or self.mean:
            self.module.load_state_dict(self.best or self.mean)
        return self.module.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload, no-any-return]

    def _run_epoch(self, lessons: TrainingData, epoch: int, report: Report | None) -> None:
        seed = self.recipe.seed
        before, began = self.seconds, time.monotonic()
        # Dropout draws from torch's own generator: set per epoch, so that a resumed training draws the same.
        torch.manual_seed(rng.torch_stream("train.dropout", seed, epoch).initial_seed())
        order = torch.from_numpy(rng.stream("train.order", seed, epoch).permutation(len(lessons)))
        lessons.start(epoch)
        self.module.train()
        parts = order.split(self.recipe.batch)
        for step, index in enumerate(parts, start=1):
            if step % AHEAD == 1:
                lessons.ahead(self.module, torch.cat(parts[step - 1 : step - 1 + AHEAD]))
            loss = self._step(lessons, index)
            self.seconds = before + time.monotonic() - began
            if report is not None and (step % 20 == 1 or step == len(parts)):
                done = (epoch + step / len(parts)) / self.recipe.epochs
                report(TrainingStep(epoch + 1, self.recipe.epochs, done, loss.item(), self.seconds * (1 - done) / done))

    def _step(self, lessons: TrainingData, index: Tensor) -> Tensor:
        loss = lessons.loss(self.module, index)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        if self.recipe.average:
            self._average()
        return loss.detach()

    def _average(self) -> None:
        """The exponential mean of weights and statistics; what counts steps is taken as it is.

        The first weights are soon forgotten, so that the mean of a short training is not mostly them.
        """
        step = self.schedule.last_epoch  # 1 at the first
        keep = min(self.recipe.average, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, value in self.module.state_dict().items():
                if name not in self.mean or not value.is_floating_point():
                    self.mean[name] = value.clone()
                else:
                    self.mean[name].lerp_(value, 1 - keep)

    def _look(self) -> None:
        """Judge the weights of this epoch, and keep them if they are the best so far."""
        if self.judge is None:
            return
        now = {name: value.clone() for name, value in self.module.state_dict().items()}
        if self.mean:
            self.module.load_state_dict(self.mean)
        self.judged.append(float(self.judge(self.module.eval())))
        if self.judged[-1] >= max(self.judged):
            self.best = {name: value.clone() for name, value in self.module.state_dict().items()}
        self.module.load_state_dict(now)

    def _waited(self) -> bool:
        """Whether the last epochs were no better than one before them."""
        patience = self.recipe.patience
        if patience is None or len(self.judged) <= patience:
            return False
        return max(self.judged[-patience:]) <= max(self.judged[:-patience])

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        state: dict[str, Any] = {name: getattr(self, name).state_dict() for name in ("module", "optimiser", "schedule")}
        state |= {"mean": self.mean, "best": self.best, "judged": self.judged}
        state |= {"epoch": self.epoch, "seconds": self.seconds, "recipe": json.dumps(asdict(self.recipe))}
        content = io.BytesIO()
        torch.save(state, content)
        if isinstance(self.checkpoint, Path):
            write_bytes(self.checkpoint, content.getvalue())
        else:
            self.checkpoint.write(content.getvalue())

    def _resume(self) -> None:
        """Go on from the checkpoint; one of another recipe is left aside."""
        place = self.checkpoint
        if place is None or not place.exists():
            return
        try:
            content = place.read_bytes() if isinstance(place, Path) else place.read()
            state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged checkpoint raises anything
            message = f"the checkpoint {place} cannot be read: delete it to start again ({error})."
            raise BadInput("unreadable", "checkpoint", message) from error
        if state.get("recipe") != json.dumps(asdict(self.recipe)):
            return
        for name in ("module", "optimiser", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.mean, self.best, self.judged = dict(state["mean"]), dict(state["best"]), list(state["judged"])
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])

    def about(self) -> dict[str, Any]:
        """What the header of the weights says of the training."""
        return {
            "recipe": self.recipe.describe(),
            "seconds": round(self.seconds),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__.partition("+")[0],
        }


def _optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    if recipe.optimiser == "adam":
        return torch.optim.AdamW(weights, lr=recipe.rate, weight_decay=recipe.weight_decay)
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(weights, lr=recipe.rate, momentum=recipe.momentum, nesterov=True, weight_decay=recipe.weight_decay)
    raise BadInput("out-of-range", "optimiser", f"optimiser={recipe.optimiser!r}: expected adam or sgd.")


def _schedule(optimiser: torch.optim.Optimizer, recipe: Recipe, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """steps: of an epoch."""
    total = recipe.epochs * steps
    if recipe.schedule == "onecycle":
        rise = 0.25 if total != 4 else 0.5  # a quarter of four steps ends where it begins, and torch divides by its length
        return torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=total, pct_start=rise)
    if recipe.schedule in ("steps", "constant"):
        drops = [round(share * total) for share in recipe.drops] if recipe.schedule == "steps" else []
        return torch.optim.lr_scheduler.MultiStepLR(optimiser, drops, 0.1)
    raise BadInput("out-of-range", "schedule", f"schedule={recipe.schedule!r}: expected onecycle, steps or constant.")
