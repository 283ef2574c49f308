"""Load targets, and print as JSON what each reached: addresses, processes, and files below a folder. Run by test_offline.py."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

REACHED = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "subprocess.Popen",
    "os.system",
    "os.exec",
)


def main(folder: str, specs: list[str]) -> None:
    from neurotest.target.extras import guarded_torchvision

    guarded_torchvision()
    import timm  # noqa: F401  imports start processes to find out about the machine
    import transformers  # noqa: F401

    events: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in REACHED:
            events.append(f"{event} {args[1:2]!s:.100}")
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(args[0]))
            if path.startswith(folder + os.sep):
                events.append(f"open {os.path.relpath(path, folder)}")

    sys.addaudithook(hook)
    warnings.simplefilter("ignore")
    for spec in specs:
        events.clear()
        print(json.dumps({"spec": spec, "answer": answer(spec), "events": sorted(set(events))}))


def answer(spec: str) -> str:
    import timm

    from neurotest.errors import BadInput
    from neurotest.target.extras import offline
    from neurotest.target.load import load

    try:
        if spec == "timm itself":
            timm.create_model("hf-hub:somebody/net")
        elif spec == "timm itself, offline":
            with offline():
                timm.create_model("hf-hub:somebody/net")
        else:
            load(spec)
    except BadInput as error:
        return f"refused: {error}"
    except Exception as error:
        return f"raised {type(error).__name__}"
    return "loaded"


if __name__ == "__main__":
    main(os.path.realpath(sys.argv[1]), sys.argv[2:])
