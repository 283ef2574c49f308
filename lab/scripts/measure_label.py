"""How long `neurotest label` takes to answer at a large pool, while its selector learns: time and processor time per request.

python lab/scripts/measure_label.py --pool 100000 --labels 200
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

HOLDER = "0123456789abcdef"
THINK = 0.3  # seconds between an input and its answer
TARGET, BASE = "zoo:mnist-lenet1", "zoo:mnist/test"


def write_pool(file: Path, count: int) -> None:
    """Moved copies of test images, no two alike."""
    import neurotest

    source = neurotest.data(BASE)
    x = source.read(np.arange(len(source)))
    rng = np.random.default_rng(0)
    rows = [np.roll(x, (int(dy), int(dx)), axis=(2, 3)) for dy, dx in rng.integers(-4, 5, (-(-count // len(x)), 2))]
    pool = np.concatenate(rows)[:count]
    pool[:, 0, 0, 0] = rng.integers(0, 256, count)
    np.savez(file, x=pool)


class Server:
    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "neurotest", "label", str(run), "--json", "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = urlsplit(json.loads(self.process.stdout.readline())["url"])
        self.base, self.token = f"http://127.0.0.1:{address.port}", address.query.removeprefix("token=")

    def ask(self, path: str, body: Any = None) -> tuple[bytes, float]:
        """The answer, and how long it took."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        began = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(self.base + path, content, headers)) as response:
            answer = response.read()
        return answer, time.perf_counter() - began

    def processor_time(self) -> float:
        """Of the server itself; its selector is another process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(run: Path, labels: int) -> tuple[dict[str, list[float]], float, int]:
    server = Server(run)
    times: dict[str, list[float]] = {"next": [], "picture": [], "label": [], "progress": []}
    busy = 0
    try:
        while json.loads(server.ask("/api/progress")[0])["standing"] is None:
            time.sleep(1)
        began = server.processor_time()
        for number in range(labels):
            answer, seconds = server.ask("/api/next", {"holder": HOLDER})
            times["next"].append(seconds)
            shown = json.loads(answer)["input"]
            times["picture"].append(server.ask(shown["picture"])[1])
            time.sleep(THINK)
            body = {"holder": HOLDER, "position": shown["position"], "label": number % 10}
            times["label"].append(server.ask("/api/label", body)[1])
            progress, seconds = server.ask("/api/progress")
            times["progress"].append(seconds)
            busy += json.loads(progress)["choosing"]
        return times, (server.processor_time() - began) / (4 * labels), busy
    finally:
        server.process.terminate()
        server.process.wait()


def interval(values: np.ndarray, share: float) -> tuple[float, float, float]:
    """A quantile with its 95 % interval by the bootstrap."""
    drawn = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.quantile(np.quantile(drawn, share, axis=1), (0.025, 0.975))
    return float(np.quantile(values, share)), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--run", type=Path, help="a selection made before by this script; kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if not run.exists():
            from neurotest.select import select

            pool = (options.run or Path(folder) / "run").with_name("pool.npz")
            write_pool(pool, options.pool)
            select(TARGET, f"npz:{pool}#x", "adaptive:prior=none", 20, out=run)
        times, processor, busy = measure(run, options.labels)
    load = f"{os.getloadavg()[0] / (os.cpu_count() or 1):.1f}"
    print("| request | requests | median, ms | 95th percentile, ms | longest, ms | processes per processor |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, values in times.items():
        cells = [interval(1000 * np.array(values), share) for share in (0.5, 0.95)]
        words = [f"{value:.1f} ({low:.1f} .. {high:.1f})" for value, low, high in cells]
        print(f"| {name} | {len(values)} | {words[0]} | {words[1]} | {1000 * max(values):.1f} | {load} |")
    requests = sum(map(len, times.values()))
    print(f"| any, processor time of the server, mean | {requests} | {1000 * processor:.1f} |  |  | {load} |")
    print(f"the selector was learning after {busy} of {options.labels} labels", file=sys.stderr)


if __name__ == "__main__":
    main()
