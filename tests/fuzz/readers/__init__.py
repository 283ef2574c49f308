"""Every reader of files and texts that come from outside, each with a way to generate inputs for it."""

from __future__ import annotations

from tests.fuzz.readers import data, networks, runs, texts

READERS = {kind.name: kind for module in (data, networks, texts, runs) for kind in module.KINDS}
