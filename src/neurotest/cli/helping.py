"""Help that can be read: commands in groups with whole sentences; of a command the usual options, `--help-all` for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand, TyperGroup

ALL = "--help-all"
GROUPS = {
    "Look": ("check", "doctor", "cover", "robustness"),
    "Select and label": ("select", "label", "labels", "suspects", "score", "export"),
    "Break": ("fuzz", "attack", "swarm", "diff", "illuminate", "status", "families", "replay", "shrink", "merge"),
    "Explain": ("explain", "describe", "neurons"),
    "Fix": ("repair",),
    "Compare": ("gate", "evaluate"),
    "Report": ("report", "serve"),
    "More": ("demo", "init", "list", "zoo", "data", "runs", "study", "bench"),
}


def common(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Which options of a command its help shows; all others are for `--help-all`."""

    def declare(command: Callable[..., Any]) -> Callable[..., Any]:
        command.common = names  # type: ignore[attr-defined]
        return command

    return declare


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring, without its full stop."""
    words = " ".join((text or "").split())
    return re.split(r"\.(?= [A-Z]|$)", words)[0]


class GroupedCommands(TyperGroup):
    """The commands, grouped by what people want to do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            rows = [(name.ljust(width), first_sentence(self.commands[name].help)) for name in names if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Command(TyperCommand):
    """A command whose help leaves out what few people use."""

    everything = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        if ALL in words:
            self.everything, args = True, ["--help"]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        params, rare = self.params, set() if self.everything else self._rare()
        self.params = [param for param in params if param.name not in rare]
        try:
            super().format_options(ctx, formatter)
        finally:
            self.params = params
        if rare:
            with formatter.section("More"):
                formatter.write_dl([(ALL, f"Show {len(rare)} more options, such as those that describe the network.")])

    def _rare(self) -> set[str]:
        """Names of options that are shown with `--help-all` only."""
        options = {str(param.name) for param in self.params if param.param_type_name == "option"}
        usual = getattr(self.callback, "common", None)
        if usual is not None:
            return options - set(usual)
        return options & set(getattr(self.callback, "describing", ())) - {"weights"}
