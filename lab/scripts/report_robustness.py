"""CLEVER's estimate beside the smallest change found, as a Markdown table: python lab/scripts/report_robustness.py [INPUTS]."""

from __future__ import annotations

import sys

import neurotest

SUBJECTS = {"mnist-lenet5": "mnist", "fashion-lenet5": "fashion-mnist"}


def main(inputs: int) -> None:
    columns = [
        "network", "norm", "inputs", "estimate, mean (95 %)", "smallest change found, mean (95 %)", "found below the estimate",
        "inputs that random points of the ball change", "fits used",
    ]  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for network, dataset in SUBJECTS.items():
        source = neurotest.data(f"zoo:{dataset}/test")
        odd = source.take(range(1, len(source), 2))  # even ones are for designing
        for norm in ("l1", "l2", "linf"):
            one = neurotest.robustness(f"zoo:{network}", odd, norm=norm, inputs=inputs, out=False).to_dict()
            estimate, upper = (
                f"{one[name]:.3g} ({one[f'{name}_interval'][0]:.3g} .. {one[f'{name}_interval'][1]:.3g})"
                for name in ("score", "upper")
            )
            cells = [
                network, norm, one["inputs"], estimate, upper, one["contradicted"],
                f"{one['random']['inputs']} of {one['inputs']}",
                f"{one['fitted']} of {one['fits']}",
            ]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
