"""All studies: importing this registers them."""

import importlib
import pkgutil

from neurotest_lab import studies

for package in pkgutil.iter_modules(studies.__path__):
    if package.ispkg:
        importlib.import_module(f"{studies.__name__}.{package.name}.study")
