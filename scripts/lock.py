"""The SHA-256 of every file that `constraints.txt` may install, in `constraints.lock`.

    python scripts/lock.py write             ask pip's index for the hashes of the pinned versions
    python scripts/lock.py check REPORT ...  compare what `pip install --report REPORT` took with them
    python scripts/lock.py check FOLDER ...  the same for a folder of wheels (`pip download -d FOLDER`)

torch is left out: builds of one version differ between indexes. So is torchvision, which model libraries bring along:
no version of it is pinned, because none imports beside every build of torch.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS, LOCK = ROOT / "constraints.txt", ROOT / "constraints.lock"
LEFT_OUT = {"torch", "torchvision"}
HEAD = "# SHA-256 of the files of constraints.txt. Written by `python scripts/lock.py write`; checked by `.ci/run`.\n"
PYTHONS = re.compile(r"py3|py2\.py3|cp31[1-4]-cp31[1-4]$|cp3\d+-abi3")  # of a wheel: `cp311-cp311`, `cp39-abi3`, `py3-none`
OTHERS = re.compile(r"musllinux|i686|win32|armv|ppc64|s390x|riscv|loongarch")  # machines on which nobody runs neurotest


def pins() -> dict[str, str]:
    """Versions of `constraints.txt` by the normal form of a name."""
    lines = (line.partition("#")[0].strip() for line in PINS.read_text().splitlines())
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(name: str, version: str) -> list[str]:
    """The hashes that the index gives for the files of a version."""
    from pip._internal.models.index import PyPI

    with urllib.request.urlopen(f"{PyPI.simple_url}/{name}/", timeout=180) as answer:
        page = answer.read().decode()
    links = (html.unescape(link) for link in re.findall(r'href="([^"]+)"', page))
    files = (re.fullmatch(r"[^#]*/([^/#]+)#sha256=([0-9a-f]{64})", link) for link in links)
    taken = sorted({file[2] for file in files if file and _version(file[1]) == version and _used(file[1])})
    if not taken:
        raise SystemExit(f"{name}=={version}: the index gives no hash of it.")
    return taken


def _version(file: str) -> str:
    """The version in the name of a wheel or of a source archive."""
    return file.split("-")[1] if file.endswith(".whl") else re.sub(r"\.(tar\.gz|tar\.bz2|zip)$", "", file).rpartition("-")[2]


def _name(file: str) -> str:
    return file.split("-")[0] if file.endswith(".whl") else file.rpartition("-")[0]


def _used(file: str) -> bool:
    """Whether it is a source archive, or a wheel for a Python and a machine that neurotest runs on."""
    if not file.endswith(".whl"):
        return True
    python, abi, machine = file.removesuffix(".whl").split("-")[-3:]
    return bool(PYTHONS.match(f"{python}-{abi}")) and not OTHERS.search(machine)


def write() -> None:
    wanted = [(name, version) for name, version in sorted(pins().items()) if name not in LEFT_OUT]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pin: hashes(*pin), wanted))
    entries = [
        f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in digests)
        for (name, version), digests in zip(wanted, found, strict=True)
    ]
    LOCK.write_text(HEAD + "\n".join(entries) + "\n")
    print(f"{len(entries)} packages, {sum(map(len, found))} files")


def locked() -> dict[tuple[str, str], set[str]]:
    """Hashes by name and version."""
    entries: dict[tuple[str, str], set[str]] = {}
    for word in LOCK.read_text().split():
        if "==" in word:
            name, _, version = word.partition("==")
            entries[name, version] = digests = set()
        elif word.startswith("--hash="):
            digests.add(word.partition(":")[2])
    return entries


def installed(report: Path) -> list[tuple[str, str, str]]:
    """Name, version and hash of every file in a report of pip, or in a folder."""
    if report.is_dir():
        files = [file for file in sorted(report.iterdir()) if file.name.endswith((".whl", ".tar.gz", ".tar.bz2", ".zip"))]
        return [(normal(_name(f.name)), _version(f.name), hashlib.sha256(f.read_bytes()).hexdigest()) for f in files]
    items = [item for item in json.loads(report.read_text())["install"] if "archive_info" in item["download_info"]]
    return [
        (normal(item["metadata"]["name"]), item["metadata"]["version"], item["download_info"]["archive_info"]["hashes"]["sha256"])
        for item in items
    ]


def check(reports: list[Path]) -> None:
    """Exit 1 if a file of a pinned version has a hash that is not in the lock, or the lock is not that of the pins."""
    lock, wrong, count = locked(), [], 0
    stale = {(name, version) for name, version in pins().items() if name not in LEFT_OUT} ^ lock.keys()
    wrong += [f"{name}=={version} stands in one of constraints.txt and constraints.lock only" for name, version in sorted(stale)]
    for name, version, digest in {file for report in reports for file in installed(report)}:
        if name in LEFT_OUT:
            continue
        count += 1
        if (name, version) not in lock:
            wrong.append(f"{name}=={version} is not pinned in constraints.txt")
        elif digest not in lock[name, version]:
            wrong.append(f"{name}=={version}: the installed file has SHA-256 {digest}, which is not in constraints.lock")
    print("\n".join(sorted(wrong)) or f"{count} files have the hashes of constraints.lock")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("reports", nargs="*", type=Path)
    chosen = parser.parse_args()
    write() if chosen.action == "write" else check(chosen.reports)
