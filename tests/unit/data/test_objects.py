"""What Python programs hold: arrays, tensors, pairs, datasets, loaders, columns of paths."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from neurotest.audio import wav
from neurotest.data import data, objects
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.images import Preprocess

X = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
Y = np.array([0, 2, 1, 0, 2, 1])


def everything(source: Source) -> np.ndarray:
    return source.read(np.arange(len(source)))


class Items(Dataset[Any]):
    """What torchvision's datasets look like."""

    classes = ("ant", "bee", "cow")

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(torch.from_numpy(X), Y.tolist(), strict=True))


def picture(i: int) -> Image.Image:
    return Image.fromarray(X[i].transpose(1, 2, 0))


LABELLED = {
    "pair of arrays": (X, Y),
    "pair of tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "pair with a list of labels": (X, Y.tolist()),
    "dataset of tensors": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "shuffling loader": DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=2, shuffle=True),
    "loader of a stream": DataLoader(Stream(), batch_size=4),
    "list of items": [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "dictionaries": [{"image": x, "label": int(y)} for x, y in zip(X, Y, strict=True)],
    "pictures": Items(*((picture(i), int(Y[i])) for i in range(6))),
    "pictures and labels": ([picture(i) for i in range(6)], Y),
}


@pytest.mark.parametrize("name", LABELLED)
def test_inputs_and_labels_arrive_in_order(name: str) -> None:
    source = data(LABELLED[name])
    assert (everything(source) == X).all()
    assert source.labels is not None
    assert source.labels.tolist() == Y.tolist()
    assert source.ids().tolist() == data((X, Y)).ids().tolist()


@pytest.mark.parametrize("name", LABELLED)
def test_a_limit_is_a_limit(name: str) -> None:
    source = data(LABELLED[name], limit=4)
    assert (everything(source) == X[:4]).all()
    assert source.labels is not None
    assert source.labels.tolist() == Y[:4].tolist()


@pytest.mark.parametrize("thing", [X, torch.from_numpy(X), list(X), [picture(i) for i in range(6)]])
def test_unlabelled(thing: Any) -> None:
    source = data(thing)
    assert (everything(source) == X).all()
    assert source.labels is None


def test_floats_of_every_kind_become_float32() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        source = data(torch.ones(2, 3, 4, 4, dtype=dtype) / 2)
        assert source.dtype == np.float32
        assert everything(source).max() == 0.5


def test_class_names_are_numbered_and_kept() -> None:
    source = data((X, ["b", "a", "c", "b", "c", "a"]))
    assert source.classes == ("a", "b", "c")
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 2, 1, 2, 0]
    assert data(Items(*((x, int(y)) for x, y in zip(X, Y, strict=True)))).classes == ("ant", "bee", "cow")


def test_columns_of_paths(tmp_path: Path) -> None:
    for i in range(6):
        picture(i).save(tmp_path / f"{i}.png")
    paths = [str(tmp_path / f"{i}.png") for i in range(6)]
    for column in (paths, np.array(paths), [Path(path) for path in paths]):
        source = data((column, Y))
        assert (everything(source) == X).all()
        assert source.names is not None
        assert source.names.tolist() == paths
    (tmp_path / "3.png").write_bytes(b"no picture")
    broken = data((paths, Y))
    assert broken.labels is not None
    assert broken.labels.tolist() == [0, 2, 1, 2, 1]
    assert broken.skipped[0].file == paths[3]


def test_pictures_and_paths_in_one_list(tmp_path: Path) -> None:
    picture(1).save(tmp_path / "1.png")
    source = data([{"image": picture(0), "label": 0}, {"image": str(tmp_path / "1.png"), "label": 1}])
    assert (everything(source) == X[:2]).all()


def test_pandas_columns_and_frames_are_read_by_position(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for i in range(6):
        picture(i).save(tmp_path / f"{i}.png")
    paths = [str(tmp_path / f"{i}.png") for i in range(6)]
    frame = pandas.DataFrame({"path": paths, "label": list("bacbca")}, index=range(10, 16))
    source = data((frame["path"], frame["label"]))
    assert (everything(source) == X).all()
    assert source.classes == ("a", "b", "c")


def test_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    source = data(hugging_pictures(datasets))
    assert (everything(source) == X).all()
    assert source.classes == ("ant", "bee", "cow")
    assert source.labels is not None
    assert source.labels.tolist() == Y.tolist()


def hugging_pictures(datasets: Any) -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee", "cow"])})
    return datasets.Dataset.from_dict({"image": [picture(i) for i in range(6)], "label": Y.tolist()}, features=features)


def test_labels_of_a_table_are_read_without_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    dataset, decoded = hugging_pictures(datasets), []
    plain = datasets.Image.decode_example
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *a, **k: decoded.append(1) or plain(*a, **k))
    first = dataset[0]
    decoded.clear()
    assert objects._labels(dataset, first, 4) == [0, 2, 1, 0]
    assert not decoded
    assert data(dataset, limit=4).labels.tolist() == [0, 2, 1, 0]  # type: ignore[union-attr]
    assert len(decoded) <= 1 + 2 * 4  # what they are; their size, and their pixels


def test_tables_with_formats_and_functions_of_the_user() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = hugging_pictures(datasets)
    with_format = data(dataset.with_format("torch"))
    assert (everything(with_format) == X).all()
    assert with_format.labels is not None
    assert with_format.labels.tolist() == Y.tolist()

    def turned(batch: Any) -> Any:  # needs all columns
        return {"pixel_values": [np.asarray(one).transpose(2, 0, 1) for one in batch["image"]], "label": batch["label"]}

    source = data(dataset.with_transform(turned))
    assert (everything(source) == X).all()
    assert source.labels is not None
    assert source.labels.tolist() == Y.tolist()


# -- sound

SOUND = np.rint(9000 * np.sin(np.arange(4)[:, None] * 0.3 + np.arange(800) * 0.05 * (1 + np.arange(4)[:, None]))).astype(np.int16)
KINDS = [1, 0, 1, 0]


class Decoder:
    """What a decoder of torchcodec gives."""

    def __init__(self, samples: np.ndarray, rate: int) -> None:
        self.samples, self.rate = samples, rate

    def get_all_samples(self) -> Any:
        return SimpleNamespace(data=torch.from_numpy(self.samples)[None], sample_rate=self.rate)


def items(form: str) -> list[dict[str, Any]]:
    """Items of an audio dataset, whose `file` is a path of the machine that made it."""
    held: dict[str, Any] = {
        "decoded": lambda x: {"path": None, "array": (x / 32768).astype(np.float32), "sampling_rate": 8000},
        "stereo": lambda x: {"path": None, "array": np.stack([x, x]), "sampling_rate": 8000},
        "list": lambda x: {"array": (x / 32768).tolist(), "sampling_rate": 8000},
        "decoder": lambda x: Decoder((x / 32768).astype(np.float32), 8000),
        "bytes": lambda x: {"path": "elsewhere.wav", "bytes": wav(x[None], 8000)},
    }
    return [{"file": f"/elsewhere/{i}.wav", "audio": held[form](x), "label": KINDS[i]} for i, x in enumerate(SOUND)]


@pytest.mark.parametrize("form", ["decoded", "stereo", "list", "decoder", "bytes"])
def test_sound_of_audio_datasets(form: str, tmp_path: Path) -> None:
    if form == "bytes":
        pytest.importorskip("soundfile")
    source = data(items(form))
    assert (everything(source) == SOUND[:, None]).all()
    assert (source.rate, source.dtype) == (8000, np.int16)
    assert source.labels is not None
    assert source.labels.tolist() == KINDS
    cut = data(items(form), shape=(1, 1000), preprocess=Preprocess(rate=16_000, crop="centre"))
    assert cut.shape == (1, 1000)
    if form != "bytes":
        return
    for i, x in enumerate(SOUND):
        (tmp_path / f"{i}.wav").write_bytes(wav(x[None], 8000))
    twice = Preprocess(rate=16_000)
    assert (everything(data(items(form), preprocess=twice)) == everything(data(f"wav:{tmp_path}", preprocess=twice))).all()
    paths = [str(tmp_path / f"{i}.wav") for i in range(4)]
    files = data((paths, KINDS))
    assert (everything(files) == SOUND[:, None]).all()
    assert files.names is not None
    assert files.names.tolist() == paths


def test_sound_of_hugging_face(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("soundfile")
    for i, x in enumerate(SOUND):
        (tmp_path / f"{i}.wav").write_bytes(wav(x[None], 8000))
    columns = {"audio": [str(tmp_path / f"{i}.wav") for i in range(4)], "label": KINDS}
    label = datasets.ClassLabel(names=["no", "yes"])
    # As tables of files are declared; encoding by `Audio` itself needs torchcodec.
    table = datasets.Dataset.from_dict(columns).cast_column("label", label).cast_column("audio", datasets.Audio())
    undecoded = table.cast_column("audio", datasets.Audio(decode=False))
    source = data(undecoded)
    assert (everything(source) == SOUND[:, None]).all()
    assert source.classes == ("no", "yes")
    assert source.labels is not None
    assert source.labels.tolist() == KINDS
    if importlib.util.find_spec("torchcodec") is None:
        with pytest.raises(BadInput, match=r"cast_column\(\"audio\", datasets.Audio\(decode=False\)\)"):
            data(table)


def test_a_file_of_sound_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "large.wav", "wb") as file:
        file.truncate(65 << 20)  # takes no room on the disk
    item = {"audio": {"bytes": None, "path": str(tmp_path / "large.wav")}, "label": 0}
    with pytest.raises(BadInput, match="larger than 64 MiB"):
        data([item])


def test_sounds_that_cannot_be_used_are_left_out() -> None:
    kept = items("decoded")
    kept[1]["audio"]["array"] = None
    kept[2]["audio"]["array"] = np.full(800, np.nan)
    kept[3]["audio"] = {"bytes": b"RIFF....WAVEfmt ", "path": None}
    source = data(kept)
    assert (everything(source) == SOUND[:1, None]).all()
    assert [one.file for one in source.skipped] == ["item 1", "item 2", "item 3"]
    assert "samples of type object" in source.skipped[0].reason


def test_pictures_of_other_sizes_are_fitted_as_the_target_says() -> None:
    sizes = [Image.new("RGB", (20, 10 + i)) for i in range(3)]
    assert data(sizes, preprocess=Preprocess(resize=8)).shape == (3, 8, 8)
    assert len(data(sizes)) == 1


def test_grey_images_get_their_channel() -> None:
    assert data(np.zeros((2, 5, 5), np.uint8)).shape == (1, 5, 5)
    assert data(np.zeros((2, 5, 5), np.float32), shape=(5, 5)).shape == (5, 5)


def test_datasets_beyond_memory_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "IN_MEMORY", 10)
    source = data(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)))
    assert isinstance(source, objects.DatasetSource)
    assert (everything(source) == X).all()
    part = source.take([4, 1]).take([1])
    assert (everything(part) == X[[1]]).all()

    class Augmented(Items):
        def __getitem__(self, index: int) -> Any:
            return np.random.default_rng().random((3, 4, 5))

    with pytest.raises(BadInput, match="augmentation"):
        data(Augmented(1, 2, 3))


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (42, "data of type int: expected an array"),
        ({"x": X}, "data of type dict"),
        ([], "is empty"),
        ([{"photo": X[0]}], "the items have the keys photo"),
        ([object()], "input 0 is a object"),
        ([X[0], X[0, :2]], r"input 1 has shape \(2, 4, 5\)"),
        ((X, ["a", None, "b", "a", "b", "a"]), "labels: "),
        ((X, Y[:3]), "3 labels for 6 inputs"),
        (np.zeros((2, 3, 4, 4), np.int64), "type int64"),
        (np.full((2, 3, 4, 4), np.nan), "NaN"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(thing: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        data(thing)
