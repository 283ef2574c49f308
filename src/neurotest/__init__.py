"""neurotest: test trained neural networks from the inside."""

import sys


def _started() -> str:
    """The module behind `python -m`."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word[:1] == "-" and word[:2] not in ("--", "-X", "-W") and "m" in word:
            return word.partition("m")[2] or next(words, "")
    return ""


if sys.argv[:1] == ["-m"] and _started() == "neurotest" and not sys.flags.safe_path and sys.path[0] != __path__[0][:-10]:
    del sys.path[0]  # the current folder, where a `signal.py` would run in place of Python's own

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from neurotest.campaign import FuzzResult as FuzzResult
    from neurotest.campaign import fuzz as fuzz
    from neurotest.campaign.explain import explain as explain
    from neurotest.campaign.swarm import swarm as swarm
    from neurotest.check import CheckResult as CheckResult
    from neurotest.check import check as check
    from neurotest.check.gate import GateResult as GateResult
    from neurotest.check.gate import gate as gate
    from neurotest.coverage import Coverage as Coverage
    from neurotest.coverage import cover as cover
    from neurotest.data.source import Source as Source
    from neurotest.data.spec import data as data
    from neurotest.doctor import doctor as doctor
    from neurotest.errors import BadInput as BadInput
    from neurotest.errors import NeurotestError as NeurotestError
    from neurotest.evaluate import evaluate as evaluate
    from neurotest.evaluate.robustness import RobustnessResult as RobustnessResult
    from neurotest.evaluate.robustness import robustness as robustness
    from neurotest.generate.differential import DiffResult as DiffResult
    from neurotest.generate.differential import diff as diff
    from neurotest.generate.gradient import AttackResult as AttackResult
    from neurotest.generate.gradient import attack as attack
    from neurotest.generate.illuminate import IlluminateResult as IlluminateResult
    from neurotest.generate.illuminate import illuminate as illuminate
    from neurotest.repair import RepairResult as RepairResult
    from neurotest.repair import repair as repair
    from neurotest.report.track import track as track
    from neurotest.runs.store import Run as Run
    from neurotest.scale.opening import workers as workers
    from neurotest.scan import profile as profile
    from neurotest.scan import scan as scan
    from neurotest.select import Selection as Selection
    from neurotest.select import select as select
    from neurotest.select.large import score as score
    from neurotest.select.suspects import Suspects as Suspects
    from neurotest.select.suspects import suspects as suspects
    from neurotest.semantics.descriptions import Descriptions as Descriptions
    from neurotest.semantics.descriptions import NeuronDescription as NeuronDescription
    from neurotest.semantics.descriptions import describe as describe
    from neurotest.target import Probe as Probe
    from neurotest.target import Profile as Profile
    from neurotest.target import Target as Target
    from neurotest.target import Trace as Trace
    from neurotest.target import Want as Want
    from neurotest.target.load import load as load

# Names are resolved when first used, so that `import neurotest` stays quick and imports no torch. A name that is its own
# home is a module that can be called (callable_module.py).
_HOME = {
    "AttackResult": "generate.gradient",
    "BadInput": "errors",
    "CheckResult": "check",
    "Coverage": "coverage",
    "Descriptions": "semantics.descriptions",
    "DiffResult": "generate.differential",
    "FuzzResult": "campaign",
    "GateResult": "check.gate",
    "IlluminateResult": "generate.illuminate",
    "NeuronDescription": "semantics.descriptions",
    "NeurotestError": "errors",
    "Probe": "target",
    "Profile": "target",
    "RepairResult": "repair",
    "RobustnessResult": "evaluate.robustness",
    "Run": "runs.store",
    "Selection": "select",
    "Source": "data.source",
    "Suspects": "select.suspects",
    "Target": "target",
    "Trace": "target",
    "Want": "target",
    "attack": "generate.gradient",
    "check": "check",
    "cover": "coverage",
    "data": "data",
    "describe": "semantics.descriptions",
    "diff": "generate.differential",
    "doctor": "doctor",
    "evaluate": "evaluate",
    "explain": "campaign",
    "fuzz": "campaign",
    "gate": "check.gate",
    "illuminate": "generate.illuminate",
    "load": "target",
    "profile": "scan",
    "repair": "repair",
    "robustness": "evaluate.robustness",
    "scan": "scan",
    "score": "select.large",
    "select": "select",
    "suspects": "select.suspects",
    "swarm": "campaign",
    "track": "report.track",
    "workers": "scale.opening",
}

_RENAMED = {"Description": "NeuronDescription"}  # in 0.3: the old names go with 0.4

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        from neurotest.errors import Remark

        warnings.warn(f"neurotest.{name} is now neurotest.{_RENAMED[name]}.", Remark, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module 'neurotest' has no attribute {name!r}")
    home = importlib.import_module(f"neurotest.{_HOME[name]}")
    return home if _HOME[name] == name else getattr(home, name)


def __dir__() -> list[str]:
    return __all__
