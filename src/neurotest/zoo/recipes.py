"""How each network of the zoo is trained: everything `neurotest zoo train NAME` needs."""

from __future__ import annotations

from dataclasses import dataclass

_SCHEDULES = {"onecycle": "OneCycle up to", "steps": "in steps from", "constant": "at"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run: optimiser and learning rate, batch order and augmentation from `seed`.

    schedule: `onecycle` rises to `rate` and falls to nothing; `steps` begins with it and divides it by ten at each of `drops`
    (shares of all epochs); `constant` keeps it. average: how much of the mean of weights over the steps stays at each step, less
    at first; 0: the last weights count. patience: epochs without improvement after which training stops, where one judges it.
    """

    epochs: int
    batch: int = 64
    optimiser: str = "adam"
    rate: float = 1e-3  # the highest learning rate
    weight_decay: float = 0.0
    flip: bool = False
    crop: int = 0  # pad by this much and cut at random; of audio: shift by up to so many samples
    light: float = 0.0  # images are made darker or brighter by up to this share
    gain: float = 0.0  # of audio: louder or softer by up to so many decibels
    noise: float | None = None  # of audio: white noise so many decibels below it, or up to 30 more
    images: int | None = None  # train on the first so many images only
    seed: int = 0
    stored: str = "float32"  # number format of the weights file, to which the trained weights are rounded
    momentum: float = 0.9  # of sgd
    schedule: str = "onecycle"
    drops: tuple[float, ...] = ()
    average: float = 0.0
    patience: int | None = None

    def describe(self) -> str:
        parts = [
            f"{self.epochs} epoch{'s' if self.epochs > 1 else ''}",
            f"batch {self.batch}",
            f"{self.optimiser} {_SCHEDULES[self.schedule]} {self.rate:g}",
        ]
        if self.images:
            parts.append(f"first {self.images:,} images")
        if self.weight_decay:
            parts.append(f"weight decay {self.weight_decay:g}")
        if self.flip or self.crop:
            parts.append("flips and crops" if self.flip and self.crop else "crops" if self.crop else "flips")
        if self.light:
            parts.append(f"light {1 - self.light:g} to {1 + self.light:g}")
        if self.gain or self.noise is not None:
            parts.append("volume and noise" if self.gain and self.noise is not None else "volume" if self.gain else "noise")
        if self.stored != "float32":
            parts.append(f"rounded to {self.stored}")
        return ", ".join([*parts, f"seed {self.seed}"])


# The MNIST LeNets are trained briefly on purpose: the papers' subjects err on about a fifth of the mutated pool, and a
# network that hardly errs leaves a selector nothing to find.
RECIPES: dict[str, Recipe] = {
    "mnist-lenet1": Recipe(epochs=1),
    "mnist-lenet4": Recipe(epochs=1),
    "mnist-lenet5": Recipe(epochs=2),
    "fashion-lenet1": Recipe(epochs=3),
    "fashion-lenet5": Recipe(epochs=4),
    "fashion-resnet20": Recipe(epochs=4, batch=128, optimiser="sgd", rate=0.2, weight_decay=5e-4, flip=True, crop=2),
    "cifar10-resnet20": Recipe(epochs=10, batch=128, optimiser="sgd", rate=0.2, weight_decay=5e-4, flip=True, crop=4),
    "cifar10-resnet56": Recipe(epochs=20, batch=128, optimiser="sgd", rate=0.2, weight_decay=5e-4, flip=True, crop=4),
    "cifar10-vgg16bn": Recipe(epochs=15, batch=128, optimiser="sgd", rate=0.1, weight_decay=5e-4, flip=True, crop=4),
    "cifar10-mobilenetv2": Recipe(epochs=20, batch=128, optimiser="sgd", rate=0.1, weight_decay=2e-4, flip=True, crop=4),
    "mnist-fcnet5": Recipe(epochs=10, batch=128),
    "mnist-fcnet10": Recipe(epochs=10, batch=128, stored="float8_e4m3fn"),  # 7.4 MB otherwise, too much to embed
    "mnist-conv1d": Recipe(epochs=5, batch=128),
    "mnist-conv2d": Recipe(epochs=5, batch=128),
    "spoken-melnet": Recipe(epochs=3, batch=32, rate=2e-3, stored="float16"),
    "lanes-dave": Recipe(epochs=20, batch=32, rate=3e-3, stored="float16"),
    "lanes-pooled": Recipe(epochs=12, batch=32, rate=3e-3, stored="float16"),
    # DeepXplore's three; 575 frames are few, so they are mirrored (a turn changes its sign) and shown darker and brighter.
    "driving-dave2": Recipe(epochs=40, batch=32, weight_decay=1e-2, flip=True, light=0.4, stored="float16"),
    "driving-dave2n": Recipe(epochs=40, batch=32, weight_decay=1e-2, flip=True, light=0.4, stored="float16"),
    "driving-dave2d": Recipe(epochs=40, batch=32, weight_decay=1e-2, flip=True, light=0.4, stored="float16"),
    # Trained otherwise on purpose: it listens to what breaks the first.
    "spoken-melnet2": Recipe(epochs=8, batch=32, rate=2e-3, stored="float16", crop=400, gain=6.0, noise=10.0, seed=1),
    "speakers-resnet": Recipe(epochs=24, batch=32, rate=4e-3, weight_decay=1e-3, crop=1600, gain=6.0, noise=15.0),
    "speakers-deepspeaker": Recipe(epochs=24, batch=32, rate=3e-3, weight_decay=1e-3, crop=800, gain=10.0, noise=25.0, seed=1),
}
