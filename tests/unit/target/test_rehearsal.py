"""A `.pt2` that would end the process is one sentence: bounded, not on the list, or tried in a process of its own first."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.refusals import refused
from tests.unit.target.exportable import save
from torch import Tensor, nn

from neurotest.errors import BadInput
from neurotest.scale.tasks import pack, unpack
from neurotest.target import load, operators, parts, program, rehearsal
from neurotest.target.archive import Malformed
from neurotest.target.exported import rehearse
from neurotest.target.onnx_tensors import FUNCTIONS

SRC = Path(__file__).resolve().parents[3] / "src"
SHAPE = (3, 8, 8)
Node = dict[str, Any]


@pytest.fixture(autouse=True)
def no_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None was tried before."""
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rehearsal, "_notes", set())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes for which a process would be started."""
    started: list[tuple[int, ...]] = []

    def counted(network: parts.Exported, what: str, shape: tuple[int, ...]) -> tuple[int, str]:
        started.append(shape)
        return 0, "passed"

    monkeypatch.setattr(rehearsal, "_run", counted)
    return started


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5))
    with zipfile.ZipFile(save(network, tmp_path_factory.mktemp("pt2") / "n.pt2")) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tampered(members: dict[str, bytes], path: Path, *nodes: Node) -> Path:
    """The network with nodes before its first."""
    name = next(name for name in members if name.endswith("models/model.json"))
    content = json.loads(members[name])
    graph = content["graph_module"]["graph"]
    graph["nodes"][:0] = [{"metadata": {}, **node} for node in nodes]
    with zipfile.ZipFile(path, "w") as archive:
        for member, old in members.items():
            archive.writestr(member, json.dumps(content) if member == name else old)
    return path


def node(target: str, *given: tuple[str, Node], outputs: tuple[Node, ...] = ({"as_tensor": {"name": "evil"}},)) -> Node:
    inputs = [{"name": name, "arg": value, "kind": 1} for name, value in given]
    return {"target": f"torch.ops.aten.{target}", "inputs": inputs, "outputs": list(outputs)}


X: tuple[str, Node] = ("self", {"as_tensor": {"name": "input"}})
TINY = [("scales_h", {"as_float": 1e-12}), ("scales_w", {"as_float": 1e-12})]
SHRINK = [X, ("output_size", {"as_ints": [4, 4]}), ("align_corners", {"as_bool": False}), *TINY]
NUMBER = ({"as_sym_int": {"as_name": "evil"}},)
CRASHES = {
    "scales of 1e-12": ([node("_upsample_bilinear2d_aa.default", *SHRINK)], "scales_h=1e-12; expected a number from"),
    "cubic": ([node("_upsample_bicubic2d_aa.default", *SHRINK)], "scales_h=1e-12; expected a number from"),
    "remainder of 0": (
        [node("remainder.int", ("a", {"as_int": 5}), ("b", {"as_int": 0}), outputs=NUMBER)],
        "not among the operators that neurotest runs by itself",
    ),
    "a type by its number": (
        [node("to.prim_dtype", X, ("dtype", {"as_int": 1000}))],
        "not among the operators that neurotest runs by itself",
    ),
}


@pytest.mark.parametrize("name", CRASHES)
def test_what_ended_the_process_is_refused_without_one(
    name: str, members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_run", lambda *_: (0, "passed"))  # bounds hold by themselves
    nodes, sentence = CRASHES[name]
    with pytest.raises(BadInput, match=sentence):
        load(f"pt2:{tampered(members, tmp_path / 'n.pt2', *nodes)}")


def scales(name: str, scale: float) -> list[Any]:
    sides = int(name[-2]) if name[-1] == "d" else 2
    return [torch.rand(1, 1, *[8] * sides), [4] * sides, *([] if "nearest" in name else [False]), *[scale] * sides]


@pytest.mark.parametrize("scale", [1e-12, 0.0, -1.0, 1e12, float("nan"), float("inf")])
@pytest.mark.parametrize("name", sorted(name for name in operators.OPERATORS if "upsample" in name))
def test_every_resize_has_bounds(name: str, scale: float) -> None:
    resize = operators.lookup(f"torch.ops.aten.{name}.default")
    assert resize(*scales(name.removesuffix("_aa"), 0.5)).ndim > 2
    with pytest.raises(Malformed, match=r"upsample.* is given scales.*expected a number from 0.000244141 to 4,096"):
        resize(*scales(name.removesuffix("_aa"), scale))


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("conv2d.default", {"input": torch.rand(1, 1, 8, 8), "weight": torch.rand(1, 1, 3, 3), "dilation": [2**21, 1]}),
        ("avg_pool2d.default", {"self": torch.rand(1, 1, 8, 8), "kernel_size": [2, 2], "stride": [2**40, 1]}),
        ("constant_pad_nd.default", {"self": torch.rand(1, 8), "pad": [0, 2**62]}),
        ("repeat.default", {"self": torch.rand(1, 8), "repeats": [2**40, 1]}),
        ("expand.default", {"self": torch.rand(1, 8), "size": [2**40, 8]}),
        ("tril.default", {"self": torch.rand(8, 8), "diagonal": 2**63 - 1}),
        ("grid_sampler_2d.default", {"input": torch.rand(1, 1, 4, 4), "grid": torch.rand(1, 4, 4, 2), "interpolation_mode": 7,
                                     "padding_mode": 0, "align_corners": False}),
    ],
)  # fmt: skip
def test_sizes_have_bounds(target: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"aten::\w+ is given \w+=\d+; expected a number from"):
        operators.lookup(f"torch.ops.aten.{target}")(**arguments)


def test_slices_have_none() -> None:
    """The end of a slice that has none is the largest integer."""
    assert operators.lookup("torch.ops.aten.slice.Tensor")(torch.arange(9), 0, 3, 2**63 - 1).tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("target", ["remainder.int", "add.t", "eq.device", "sort.any", "to.prim_Device", "lstm.data", "gru.data"])
def test_overloads_that_no_export_writes(target: str) -> None:
    assert not operators.exportable(operators.lookup(f"torch.ops.aten.{target}"))


@pytest.mark.parametrize(
    "target", ["sym_size.int", "_assert_scalar.default", "zeros.default", "lstm.input", "to.dtype", "add.Tensor"]
)
def test_overloads_that_exports_write(target: str) -> None:
    assert operators.exportable(operators.lookup(f"torch.ops.aten.{target}"))


def four(*shape: int) -> Tensor:
    return torch.rand(2, 4, *shape)


@pytest.mark.parametrize(
    ("target", "arguments", "sentence"),
    [
        ("_fft_r2c", (four(4, 4), [3, 3], 0, True), "expected different ones from 0 to 3"),
        ("_fft_r2c", (four(4, 4), [-2], 0, True), "expected different ones from 0 to 3"),
        ("_fft_c2c", (four(4) + 0j, [0, 7], 0, True), "expected different ones from 0 to 2"),
        ("_fft_c2r", (four(4) + 0j, [2], 0, 1000), "last_dim_size=1000 for a tensor of the shape"),
        ("scaled_dot_product_attention", (four(0, 8), four(0, 8), four(0, 8)), "which is empty"),
        ("scaled_dot_product_attention", (four(3, 8), four(3, 8)[:, :0], four(3, 8)[:, :0]), "which is empty"),
    ],
)
def test_arguments_that_ended_the_process(target: str, arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(Malformed, match=sentence):
        operators.lookup(f"torch.ops.aten.{target}.default")(*arguments)


@pytest.mark.parametrize(
    "change", ["no states", "one state", "a state for two", "no weights", "a weight less", "integers", "no layers"]
)
def test_recurrent_layers_take_what_fits(change: str) -> None:
    layer = nn.LSTM(3, 4, batch_first=True)
    state, params = [torch.zeros(1, 2, 4)] * 2, [weight.detach() for weight in layer.parameters()]
    given: list[Any] = [torch.rand(2, 5, 3), state, params, True, 1, 0.0, False, False, True]
    lstm = operators.lookup("torch.ops.aten.lstm.input")
    torch.testing.assert_close(lstm(*given)[0], layer(given[0])[0])
    at, value = {
        "no states": (1, []), "one state": (1, state[:1]), "a state for two": (1, [state[0], torch.zeros(2, 2, 4)]),
        "no weights": (2, []), "a weight less": (2, params[:3]),
        "integers": (0, torch.ones(2, 5, 3, dtype=torch.int32)), "no layers": (4, 0),
    }[change]  # fmt: skip
    given[at] = value
    with pytest.raises(Malformed, match="a recurrent network"):
        lstm(*given)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_recurrent_call_that_ended_the_process(device: str) -> None:
    """Without values, too: that run is not safe by itself."""
    x, states = (
        torch.rand((), device=device),
        [torch.rand(2, 1, 1, 4, 1, device=device), torch.rand(1, 1, 2, 3, 3, device=device)],
    )
    with pytest.raises(Malformed, match="a recurrent network of 5 layers is given 0 weights"):
        operators.lookup("torch.ops.aten.lstm.input")(x, states, [], False, 5, 1.5, True, True, False)


# -- in a process of its own


UNBOUNDED = """
import sys
from neurotest.target import operators, rehearsal
operators.check_bounds = operators.check_quotient = lambda *_: None
rehearsal.SECONDS = int(sys.argv[2])
rehearsal.main()
"""


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has no bounds, so that what they keep out happens there."""
    monkeypatch.setattr(rehearsal, "start_module", start_unbounded)


def start_unbounded(module: str, stdin: Any, stdout: Any, seconds: int = 120) -> subprocess.Popen[bytes]:
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}){UNBOUNDED}"
    command = [sys.executable, "-P", "-c", code, "", str(seconds)]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)


@pytest.mark.usefixtures("unbounded")
def test_a_crash_there_is_a_sentence_here(members: dict[str, bytes], tmp_path: Path) -> None:
    path = tampered(members, tmp_path / "n.pt2", *CRASHES["scales of 1e-12"][0])
    sentence = r"^pt2:\S+ crashes: torch\.ops\.aten\._upsample_bilinear2d_aa\.default ended a trial process with SIG\w+\. Export"
    for _ in range(2):  # nothing is noted
        with pytest.raises(BadInput, match=sentence):
            load(f"pt2:{path}")
    assert not list((tmp_path / "cache").glob("rehearsed/*"))


class Long(nn.Module):
    """Quick without values, and long with them."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.mean((1, 2, 3)).reshape(-1, 1, 1).expand(-1, 3000, 3000)
        for _ in range(20):
            wide = torch.bmm(wide, wide).clamp(-1, 1)
        return wide[:, 0, :5]


def test_a_network_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "start_module", lambda *args, **files: start_unbounded(*args, **files, seconds=3))
    path = save(Long(), tmp_path / "long.pt2")
    with refused("failed", "process"):
        load(f"pt2:{path}")


def test_a_network_that_passes_is_noted(members: dict[str, bytes], tmp_path: Path) -> None:
    load(f"pt2:{tampered(members, tmp_path / 'n.pt2')}")
    assert len(list((tmp_path / "cache" / "rehearsed").iterdir())) == 1


def test_a_network_is_tried_once(members: dict[str, bytes], tmp_path: Path, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tampered(members, tmp_path / "n.pt2")
    load(f"pt2:{path}")
    assert runs == [SHAPE]
    (note,) = (tmp_path / "cache" / "rehearsed").iterdir()
    load(f"pt2:{path}")
    monkeypatch.setattr(rehearsal, "_notes", set())  # as another process
    load(f"pt2:{path}")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("n/extra/a", b"what is not read changes nothing")
    load(f"pt2:{path}")
    assert runs == [SHAPE]
    note.unlink()
    monkeypatch.setattr(rehearsal, "_notes", set())
    load(f"pt2:{path}", trust_pickle=True)  # trusted
    with rehearsal.skipped():
        load(f"pt2:{path}")
    assert runs == [SHAPE]


def test_what_changes_the_network_is_tried_again(
    members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_run", lambda *_: (0, "passed"))
    load(f"pt2:{tampered(members, tmp_path / 'n.pt2')}")
    load(f"pt2:{tampered(members, tmp_path / 'n.pt2', node('relu.default', X))}")
    weight = next(name for name in members if name.endswith("weight_0"))
    other = {**members, weight: members[weight][::-1]}
    load(f"pt2:{tampered(other, tmp_path / 'n.pt2')}")
    monkeypatch.setattr(torch, "__version__", "9.9")
    load(f"pt2:{tampered(members, tmp_path / 'n.pt2')}")
    assert len(list((tmp_path / "cache" / "rehearsed").iterdir())) == 4


def test_a_cache_that_cannot_be_written(
    members: dict[str, bytes], tmp_path: Path, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        load(f"pt2:{tampered(members, tmp_path / 'n.pt2')}")
    assert runs == [SHAPE]


def test_every_size_of_inputs_is_tried(tmp_path: Path, runs: Any) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(16, 5)).eval()
    sizes = dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO)
    torch.export.save(torch.export.export(module, (torch.rand(3, 3, 9, 9),), dynamic_shapes=(sizes,)), tmp_path / "net.pt2")
    target = load(f"pt2:{tmp_path / 'net.pt2'}")
    assert runs == []
    for size in (9, 9, 14):
        target.logits(torch.rand(2, 3, size, size))
    assert runs == [(3, 9, 9), (3, 14, 14)]


def test_workers_do_not_try_it_again(
    members: dict[str, bytes], tmp_path: Path, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun with it was begun after it was tried, whether or not a worker sees the cache."""
    target = load(f"pt2:{tampered(members, tmp_path / 'n.pt2')}")
    assert runs == [SHAPE]
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr(rehearsal, "_notes", set())
    arrived = unpack(pack(target))
    assert arrived is not target
    assert arrived.fingerprint == target.fingerprint
    assert runs == [SHAPE]


def division(smallest: int) -> parts.Exported:
    """What an ONNX file may be turned into: integers divided by -1, and the input as it is."""
    whole = program.Node("onnx.Div", FUNCTIONS["Div"], [program.Weight("a"), program.Weight("b")], {}, (1,), False, ())
    network = program.Program([whole], {0, 1}, 2, dict.fromkeys("ab", ("buffer", True)), program.Ref(0))
    return parts.build(network, {"a": torch.tensor([smallest]), "b": torch.tensor([-1])})


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="integer division ends no process on this processor")
def test_onnx_networks_are_tried_as_well(unbounded: None) -> None:
    with refused("failed", "process"):
        rehearse(division(-(2**63)), "n.onnx", SHAPE, "onnx")
    rehearse(division(5), "n.onnx", SHAPE, "onnx")


def test_onnx_division_has_bounds() -> None:
    with pytest.raises(Malformed, match="quotient is too large"):
        division(-(2**63))(torch.rand(1, *SHAPE))


CLI = f"""
import sys
sys.path[:0] = [{str(SRC)!r}, {str(SRC.parent)!r}]
from tests.unit.target.test_rehearsal import start_unbounded
from neurotest.target import rehearsal
rehearsal.start_module = start_unbounded
from neurotest.cli.app import main
main()
"""


def test_a_crash_on_the_command_line(members: dict[str, bytes], tmp_path: Path) -> None:
    path = tampered(members, tmp_path / "n.pt2", *CRASHES["scales of 1e-12"][0])
    environment = {**os.environ, "NEUROTEST_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", CLI, "doctor", f"pt2:{path}"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "_upsample_bilinear2d_aa.default ended a trial process with SIG" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
