"""What Python programs hold: arrays, tensors, pairs, datasets, loaders, columns of paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from neurotest.data import data, objects
from neurotest.data.source import Source
from neurotest.errors import BadInput
from neurotest.pictures import Preprocess

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
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee", "cow"])})
    dataset = datasets.Dataset.from_dict({"image": [picture(i) for i in range(6)], "label": Y.tolist()}, features=features)
    source = data(dataset)
    assert (everything(source) == X).all()
    assert source.classes == ("ant", "bee", "cow")
    assert source.labels is not None
    assert source.labels.tolist() == Y.tolist()


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
