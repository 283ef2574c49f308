"""Settings, each declared once: the command line, Python, `neurotest.toml`, runs, the pytest plug-in and the docs are derived."""

from neurotest.settings.declared import CommandSettings, Declared, declared, setting
from neurotest.settings.target import TargetSettings

__all__ = ["CommandSettings", "Declared", "TargetSettings", "declared", "setting"]
