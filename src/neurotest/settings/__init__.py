"""Settings, each declared once: the command line, Python, `neurotest.toml`, runs, the pytest plug-in and the docs are derived."""

from neurotest.settings.declared import CommandSettings, Declared, declared, setting
from neurotest.settings.target import TargetSettings

__all__ = ["CommandSettings", "Declared", "TargetSettings", "declared", "of_commands", "setting"]


def of_commands() -> dict[str, type[CommandSettings]]:
    """The settings of each command by its name: those of `attack` are `AttackSettings`."""
    from neurotest.settings import analyse, generate, select

    classes = [one for module in (analyse, generate, select) for one in vars(module).values() if isinstance(one, type)]
    ends = "Settings"
    return {
        one.__name__.removesuffix(ends).lower(): one
        for one in classes
        if issubclass(one, CommandSettings) and one.__name__.endswith(ends) and one is not CommandSettings
    }
