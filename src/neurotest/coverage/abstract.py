"""Abstract decision paths: what training inputs of a class have in common, cluster by cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neurotest.errors import BadInput
from neurotest.measure.traces import Values
from neurotest.stats.neighbours import Points, nearest_other

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
REACH = 2.0  # distances are measured in so many times the greatest one within the cluster


@dataclass(frozen=True, eq=False)
class Abstract:
    """One row per class and cluster. `members` are the cluster's training activations, where distances are wanted."""

    classes: Ints  # (paths,)
    paths: Bits  # (paths, neurons)
    members: tuple[Values, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.classes)

    def jaccard(self, number: int, paths: Bits, part: slice) -> Floats:
        """Neurons in both over neurons in either; 1 when neither has any: (n,)."""
        mine, theirs = self.paths[number, part], paths[:, part]
        either = np.count_nonzero(theirs | mine, axis=1)
        both = np.count_nonzero(theirs & mine, axis=1)
        return np.where(either > 0, both / np.maximum(either, 1), 1.0)

    def distance(self, number: int, values: Values, part: slice) -> Floats:
        """Distance to the nearest member on the path's neurons, 1 is REACH times the greatest within the cluster: (n,)."""
        here = np.flatnonzero(self.paths[number, part]) + part.start
        if not len(here):
            return np.zeros(len(values))
        members = self.members[number][:, here].astype(np.float64)
        near, _ = Points(members).nearest(values[:, here].astype(np.float64))
        reach = REACH * float(nearest_other(members).max()) if len(members) > 1 else 0.0
        share: Floats = np.minimum(near / reach, 1.0) if reach > 0 else (near > 0).astype(np.float64)
        return share


def build(paths: Bits, classes: Ints, right: Bits, values: Values | None, *, clusters: int, member: float) -> Abstract:
    """Cluster the paths of each class's correctly classified inputs and keep what `member` of a cluster share."""
    rows: list[tuple[int, Bits]] = []
    members: list[Values] = []
    few = []
    for number in np.unique(classes):
        here = np.flatnonzero((classes == number) & right)
        if not len(here):
            few.append(int(number))
            continue
        for group in _clusters(paths[here], clusters):
            chosen = here[group]
            rows.append((int(number), paths[chosen].mean(axis=0) >= member))
            if values is not None:
                members.append(values[chosen])
    if not rows:
        raise BadInput("npc needs correctly classified training inputs: the target classifies none of the given ones correctly.")
    notes = (f"class {', '.join(map(str, few))} has no correctly classified training input and no path.",) if few else ()
    order = np.array([c for c, _ in rows], dtype=np.int64)
    return Abstract(order, np.stack([path for _, path in rows]), tuple(members), notes)


def _clusters(paths: Bits, clusters: int) -> list[Ints]:
    """Positions of each cluster's inputs; fewer clusters where there are fewer different paths."""
    different = len(np.unique(paths, axis=0))
    if min(clusters, different) < 2:
        return [np.arange(len(paths))]
    from sklearn.cluster import KMeans

    labels = KMeans(min(clusters, different), n_init=10, random_state=0).fit_predict(paths.astype(np.float64))
    return [np.flatnonzero(labels == number) for number in np.unique(labels)]
