"""Topics over events: K-means on their unit vectors, K = max(2, min(n // 5, 50)).

Topics are made anew from the graph whenever they are needed.
A projection, not a record: topics follow from the events' vectors alone, so nothing of
them is journalled. Deterministic: the first centre is the vector nearest to the mean,
each further one the vector farthest from all chosen, ties by position.
"""

from __future__ import annotations

import numpy as np

from memagent.protocols import Matrix, Vector

_ROUNDS = 12


def topics_of(vectors: Matrix) -> list[int]:
    """Return the topic of each unit vector (N, D), numbered from 0; [] without any."""
    n = len(vectors)
    if n == 0:
        return []
    centres = vectors[_spread(vectors, min(n, max(2, min(n // 5, 50))))]  # (K, D)
    labels = np.full(n, -1)
    for _ in range(_ROUNDS):
        nearest = np.argmax(np.round(vectors @ centres.T, 6), axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
        for topic in range(len(centres)):
            members = vectors[labels == topic]
            if len(members):
                centre = members.mean(axis=0)
                centres[topic] = centre / max(float(np.linalg.norm(centre)), 1e-12)
    return [int(label) for label in labels]


def _spread(vectors: Matrix, count: int) -> list[int]:
    chosen = [int(np.argmax(_closeness(vectors, vectors.mean(axis=0))))]
    closeness = _closeness(vectors, vectors[chosen[0]])
    while len(chosen) < count:
        closeness[chosen] = np.inf
        chosen.append(int(np.argmin(closeness)))
        closeness = np.maximum(closeness, _closeness(vectors, vectors[chosen[-1]]))
    return chosen


def _closeness(vectors: Matrix, centre: Vector) -> Vector:
    """Return cosines (N,) with a centre, rounded so that equal texts tie on every machine."""
    return np.asarray(np.round(vectors @ centre, 6), dtype=np.float32)
