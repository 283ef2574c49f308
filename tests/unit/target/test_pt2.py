"""Exported networks: same numbers as the original, and nothing a tampered archive brings along is run."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refused
from torch import Tensor, nn
from torch.nn import functional

from neurotest.errors import BadInput
from neurotest.target import Probe, Target, Want, load

BATCH = torch.export.Dim("batch")
Members = dict[str, bytes]


class Stranger(nn.Module):
    """Not ours: nested blocks, a residual, a functional ReLU, a module used twice, dropout, batch norm, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.act = nn.GELU()
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8 * 4 * 4, 5)
        self.register_buffer("scale", torch.tensor([0.5]))
        self.shift = torch.tensor(0.25)  # a plain tensor: exported as a constant

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.act(self.body(x)) + x
        x = functional.relu(self.body(x))
        x = functional.max_pool2d(x, 2).flatten(1)
        return self.head(self.drop(x)) * self.scale + self.shift


def export(path: Path, module: nn.Module, *, dynamic: bool = True) -> Path:
    shapes = ({0: BATCH},) if dynamic else None
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.export.save(torch.export.export(module, (torch.rand(4, 3, 8, 8),), dynamic_shapes=shapes), path)
    return path


@pytest.fixture(scope="module")
def original() -> nn.Module:
    torch.manual_seed(1)
    module = Stranger()
    module(torch.rand(16, 3, 8, 8))  # gives batch norm statistics of its own
    return module.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, original: nn.Module) -> Path:
    return export(tmp_path_factory.mktemp("pt2") / "stranger.pt2", original)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_logits_equal_the_originals(original: nn.Module, exported: Path, n: int) -> None:
    x = torch.rand(n, 3, 8, 8)
    target = load(f"pt2:{exported}")
    assert target.shape == (3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(target.logits(x), original(x), atol=1e-6)


@pytest.mark.parametrize("neuron", ["channel", "unit"])
def test_every_layer_gives_the_originals_values(original: nn.Module, exported: Path, neuron: Any) -> None:
    x = torch.rand(5, 3, 8, 8)
    want = Want(layers="pre_activation", neuron=neuron)
    values = []
    for target in (Target(original, shape=(3, 8, 8)), load(f"pt2:{exported}")):
        with Probe(target, want) as probe:
            values.append(list(probe(x).values.items()))
    assert [name for name, _ in values[0]] == ["stem.0", "body", "body#2", "head"]
    assert len(values[1]) == 4
    for (_, ours), (_, theirs) in zip(*values, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_presets_are_found_from_what_runs(exported: Path) -> None:
    survey = load(f"pt2:{exported}").survey()
    assert [layer.name for layer in survey.find("post_activation")] == ["stem.2", "act", "relu_1"]
    assert survey.functional == 1
    assert survey.find("features")[0].name == "head"


def test_gradients_flow(exported: Path) -> None:
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    with Probe(load(f"pt2:{exported}"), Want(), grad=True) as probe:
        probe(x).logits.sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) > 0


def test_the_fingerprint_knows_the_graph(tmp_path: Path, exported: Path) -> None:
    class Other(Stranger):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    torch.manual_seed(1)
    other = Other()
    other.load_state_dict(torch.export.load(exported).state_dict)
    doubled = export(tmp_path / "other.pt2", other.eval())
    fingerprints = [load(f"pt2:{path}").fingerprint for path in (exported, exported, doubled)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_static_batch(tmp_path: Path, original: nn.Module) -> None:
    path = export(tmp_path / "static.pt2", original, dynamic=False)
    with refused("unsupported", "batch"):
        load(f"pt2:{path}")


def test_exported_in_training_mode(tmp_path: Path) -> None:
    target = load(f"pt2:{export(tmp_path / 'training.pt2', Stranger())}")
    with refused("unsuitable", "training"):
        target.survey()


def test_transformer_with_size_expressions(tmp_path: Path) -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(12, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            n = x.shape[0]
            with torch.no_grad():
                x = x.reshape(n * 2, -1) * 2
            return self.head(self.layer(self.embed(x.reshape(n, 16, 12))).mean(1))

    module = Tokens().eval()
    x = torch.rand(3, 3, 8, 8)
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},)), tmp_path / "t.pt2")
    with torch.no_grad():
        assert torch.allclose(load(f"pt2:{tmp_path / 't.pt2'}").logits(x), module(x), atol=1e-5)


# -- archives that would run code


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.mark), "w"))


def torch_bomb(mark: Path) -> bytes:
    out = io.BytesIO()
    torch.save({"x": Bomb(mark)}, out)
    return out.getvalue()


def config(members: Members, folder: str, change: Callable[[dict[str, Any]], None]) -> None:
    name = next(n for n in members if n.endswith("_config.json") and f"/{folder}/" in n)
    content = json.loads(members[name])
    change(content["config"])
    members[name] = json.dumps(content).encode()


def graph(members: Members, change: Callable[[dict[str, Any]], None]) -> None:
    name = next(n for n in members if n.endswith("models/model.json"))
    content = json.loads(members[name])
    change(content)
    members[name] = json.dumps(content).encode()


def pickled_weight(members: Members, mark: Path) -> None:
    members["stranger/data/weights/weight_0"] = torch_bomb(mark)
    config(members, "weights", lambda c: next(iter(c.values())).update(use_pickle=True, path_name="weight_0"))


def pickled_constant(members: Members, mark: Path) -> None:
    members["stranger/data/constants/tensor_0"] = torch_bomb(mark)
    config(members, "constants", lambda c: next(iter(c.values())).update(use_pickle=True, path_name="tensor_0"))


def opaque_object(members: Members, mark: Path) -> None:
    members["stranger/data/constants/opaque_obj_0"] = pickle.dumps(Bomb(mark))
    config(members, "constants", lambda c: next(iter(c.values())).update(path_name="opaque_obj_0"))


def sample_inputs(members: Members, mark: Path) -> None:
    members["stranger/data/sample_inputs/model.pt"] = torch_bomb(mark)


def legacy_weights(members: Members, mark: Path) -> None:
    members["stranger/data/weights/model.pt"] = torch_bomb(mark)


def size_expression(members: Members, mark: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        values["x"]["sizes"][0] = {"as_expr": {"expr_str": f"open({str(mark)!r}, 'w').fileno()", "hint": {"as_int": 4}}}

    graph(members, change)


def operator(members: Members, mark: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = "torch.serialization.os.system"
        node["inputs"] = [{"name": "", "arg": {"as_string": f"touch {mark}"}, "kind": 1}]

    graph(members, change)


def file_operator(members: Members, mark: Path) -> None:
    def change(program: dict[str, Any]) -> None:
        program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"

    graph(members, change)


def variable_name(members: Members, mark: Path) -> None:
    text = json.dumps(json.loads(members["stranger/models/model.json"]))
    evil = f"x, _=open({str(mark)!r}, 'w')"
    members["stranger/models/model.json"] = text.replace('"name": "x"', json.dumps({"name": evil})[1:-1]).encode()


def compiled_code(members: Members, mark: Path) -> None:
    members["stranger/data/aotinductor/model/model.so"] = b"\x7fELF"


def module_path(members: Members, mark: Path) -> None:
    """torch writes module paths into source: a carriage return leaves the string and the function around it."""
    code = "".join(f"\\x{ord(letter):02x}" for letter in f"open({str(mark)!r}, 'w')")

    def change(program: dict[str, Any]) -> None:
        for node in program["graph_module"]["graph"]["nodes"]:
            stack = node["metadata"].get("nn_module_stack", "")
            path = f'drop")\rexec("{code}")\rdef rest():\r    #('
            node["metadata"]["nn_module_stack"] = stack.replace(",drop,", f",{path},")

    graph(members, change)


TAMPERED = [
    pickled_weight, pickled_constant, opaque_object, legacy_weights, operator, file_operator, variable_name, compiled_code,
    module_path,
]  # fmt: skip


def tampered(exported: Path, tmp_path: Path, change: Callable[[Members, Path], None]) -> tuple[Path, Path]:
    """The exported archive with one change, and the file that appears if the change is run."""
    with zipfile.ZipFile(exported) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    mark, path = tmp_path / "mark", tmp_path / "stranger.pt2"
    change(members, mark)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path, mark


@pytest.mark.parametrize("change", TAMPERED)
def test_tampered_archives_are_refused_and_nothing_runs(exported: Path, tmp_path: Path, change: Any) -> None:
    path, mark = tampered(exported, tmp_path, change)
    with refused("unsupported", "target"):
        load(f"pt2:{path}")
    assert not mark.exists()


@pytest.mark.parametrize("change", [pickled_constant, size_expression, module_path])
def test_the_attacks_are_real(exported: Path, tmp_path: Path, change: Any) -> None:
    """Otherwise the test above would prove nothing: torch runs what was planted."""
    path, mark = tampered(exported, tmp_path, change)
    with suppress(Exception):
        torch.export.unflatten(torch.export.load(path))
    assert mark.exists()


@pytest.mark.parametrize("change", [pickled_constant, module_path])
def test_trusted_archives_are_opened_by_torch(exported: Path, tmp_path: Path, change: Any) -> None:
    path, mark = tampered(exported, tmp_path, change)
    with suppress(BadInput):
        load(f"pt2:{path}", trust_pickle=True)
    assert mark.exists()


SIZE = {
    "target": "torch.ops.aten.sym_size.int",
    "inputs": [
        {"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
        {"name": "dim", "arg": {"as_int": 0}, "kind": 1},
    ],
    "outputs": [{"as_sym_int": {"as_name": "rows"}}],
    "metadata": {},
}
NUMBERS = [{"as_int": -1}, {"as_int": 2**31}, {"as_bool": True}, {"as_sym_int": {"as_name": "rows"}}, {"as_memory_format": 1}]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["dtype", "layout", "memory_format", "device"])
def test_a_number_in_place_of_a_type(exported: Path, tmp_path: Path, name: str, number: dict[str, Any]) -> None:
    """torch takes it for a place in a table without looking how long that is: the process ends, or worse."""
    if (name, *number) == ("memory_format", "as_memory_format"):
        return
    given = [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}, {"name": name, "arg": number, "kind": 2}]
    node = {"target": "torch.ops.aten._to_copy.default", "inputs": given, "outputs": [{"as_tensor": {"name": "evil"}}]}

    def change(program: dict[str, Any]) -> None:
        program["graph_module"]["graph"]["nodes"][:0] = [SIZE, {**node, "metadata": {}}]

    path, _ = tampered(exported, tmp_path, lambda members, _: graph(members, change))
    with refused("unsupported", "target"):
        load(f"pt2:{path}")


def test_overloads_for_what_is_no_tensor(exported: Path, tmp_path: Path) -> None:
    node = {"target": "torch.ops.aten.copy.Dict_int", "inputs": [{"name": "self", "arg": {"as_ints": [1]}, "kind": 1}]}

    def change(program: dict[str, Any]) -> None:
        program["graph_module"]["graph"]["nodes"].insert(0, {**node, "outputs": [], "metadata": {}})

    path, _ = tampered(exported, tmp_path, lambda members, _: graph(members, change))
    with refused("unsupported", "target"):
        load(f"pt2:{path}")


def test_two_members_of_one_name(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.pt2"
    path.write_bytes(exported.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("stranger/data/sample_inputs/model.pt", b"")
    with refused("unsupported", "target"):
        load(f"pt2:{path}")


def test_what_is_not_named_is_not_read(exported: Path, tmp_path: Path) -> None:
    extra = {"data/weights/weight_99": b"unlisted", "models/model.json.evil": b"{}", "models/other.json": b"{}", "extra/a": b"a"}
    path, _ = tampered(exported, tmp_path, lambda members, _: members.update({f"stranger/{n}": c for n, c in extra.items()}))
    assert load(f"pt2:{path}").fingerprint == load(f"pt2:{exported}").fingerprint


@pytest.mark.parametrize("change", [sample_inputs, size_expression])
def test_what_is_not_needed_is_not_looked_at(exported: Path, tmp_path: Path, change: Any) -> None:
    path, mark = tampered(exported, tmp_path, change)
    assert load(f"pt2:{path}").fingerprint == load(f"pt2:{exported}").fingerprint
    assert not mark.exists()


def test_other_bad_files(tmp_path: Path, exported: Path) -> None:
    with refused("not-found", "target"):
        load(f"pt2:{tmp_path / 'none.pt2'}")
    (tmp_path / "text.pt2").write_text("no archive")
    with refused("damaged", "target"):
        load(f"pt2:{tmp_path / 'text.pt2'}")
    torch.save({"a": torch.ones(2)}, tmp_path / "state.pt2")
    with refused("unsupported", "target"):
        load(f"pt2:{tmp_path / 'state.pt2'}")
    content = exported.read_bytes()
    for length in (100, len(content) // 2, len(content) - 10):
        (tmp_path / "cut.pt2").write_bytes(content[:length])
        with refused("damaged", "target"):
            load(f"pt2:{tmp_path / 'cut.pt2'}")
    with refused("missing", "source"):
        load("model.pt2")


def test_two_inputs(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x + y).flatten(1)

    x = torch.rand(2, 3, 8, 8)
    torch.export.save(torch.export.export(Two(), (x, x), dynamic_shapes=({0: BATCH}, {0: BATCH})), tmp_path / "two.pt2")
    with refused("unsupported", "inputs"):
        load(f"pt2:{tmp_path / 'two.pt2'}")
