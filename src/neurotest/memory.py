"""How much memory is free, and one sentence when something would need more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from neurotest.errors import BadInput

RESERVE = 0.9  # the share of free memory that may be asked for: the rest is for what else runs
_CGROUP = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free_memory() -> int:
    """Bytes that can be had now without swapping: what the system says, or what the container may still take."""
    free = [_available()]
    for limit, used in _CGROUP:
        with suppress(OSError, ValueError):  # no such group, or no limit ("max")
            folder = Path("/sys/fs/cgroup")
            free.append(int((folder / limit).read_text()) - int((folder / used).read_text()))
    return max(0, min(free))


def _proc(file: str, key: str) -> int | None:
    """Bytes that Linux says of the system or of this process."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc", file).read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return None


def _available() -> int:
    if (free := _proc("meminfo", "MemAvailable:")) is not None:
        return free
    with suppress(OSError, ValueError, AttributeError):
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    return 1 << 62  # unknown: the allocation itself has to tell


def peak() -> int:
    """Bytes that this process has held at most; 0 where nothing tells.

    Linux's own count first: what `getrusage` says of a process includes what its parent held when it started it.
    """
    if (most := _proc("self/status", "VmHWM:")) is not None:
        return most
    with suppress(ImportError):  # not on Windows
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 0


def check_memory(need: float, what: str, way_out: str) -> None:
    """Refuse, before it is asked for, what does not fit: `what` says what needs it, `way_out` what to do instead."""
    free = free_memory()
    if need > RESERVE * free:
        raise BadInput("too-large", "memory", f"{what} would need {size(need)} of memory, and {size(free)} are free: {way_out}.")


def keep_freed() -> bool:
    """Let this process keep memory that it has freed, for the next tensor of that size; whether it could be arranged.

    The C library gives large pieces back to the system at once, and a network asks for the same pieces in every pass: the
    processor then spends as much time on clearing pages as on computing. Only glibc has these switches.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] != "glibc":
        return False
    never_map, trim, top = (-4, 0), (-1, 1 << 29), (-2, 1 << 26)  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
    with suppress(OSError, AttributeError):
        return all(ctypes.CDLL(None).mallopt(*switch) == 1 for switch in (never_map, trim, top))
    return False


def size(number: float) -> str:
    """
    >>> size(1_500), size(2.5e9), size(80e9)
    ('1.5 kB', '2.5 GB', '80 GB')
    """
    units = ["TB", "GB", "MB", "kB", "B"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop()
    return f"{number:.1f} {units[-1]}" if number < 10 and units[-1] != "B" else f"{number:.0f} {units[-1]}"
