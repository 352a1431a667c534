"""How well the heads read labelled turns, token by token and statement by statement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import torch

from memagent.designs.parts.learned.labels import ACTS, ROLES
from train.learned.batches import IGNORED, TurnRow, collate
from train.learned.network import Encoder


@torch.no_grad()
def head_scores(encoder: Encoder, rows: Sequence[TurnRow], *, size: int = 64) -> dict[str, float]:
    """Return accuracies by head, and the recall of each act."""
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    confusion: dict[str, Counter[str]] = defaultdict(Counter)
    for start in range(0, len(rows), size):
        batch = collate(rows[start : start + size], {})
        hidden = encoder(batch.tokens)
        counted = batch.bounds != IGNORED
        bounds = encoder.bounds(hidden).argmax(dim=2)
        right["bounds"] += int((bounds == batch.bounds)[counted].sum())
        seen["bounds"] += int(counted.sum())
        roles = encoder.roles(hidden).argmax(dim=2)
        for number, row in enumerate(rows[start : start + size]):
            keeps = bool(bounds[number, row.rows.context : len(row.rows.words)].any())
            right["keep"] += keeps == bool(row.clauses)
            seen["keep"] += 1
            for first, after, clause in row.clauses:
                for role in clause.spans:
                    gold = batch.roles[number, first:after] == ROLES.index(role)
                    said = roles[number, first:after] == ROLES.index(role)
                    right[f"span {role}"] += bool((gold == said).all())
                    seen[f"span {role}"] += 1
        if len(batch.rows):
            inner = encoder.pooled(hidden, batch.rows, batch.inside, batch.starts)
            for name, gold in (
                ("act", batch.acts),
                ("kind", batch.kinds),
                ("subject", batch.subjects),
            ):
                said = getattr(encoder, name)(inner).argmax(dim=1)
                right[name] += int((said == gold).sum())
                seen[name] += len(gold)
                if name == "act":
                    for own, other in zip(gold.tolist(), said.tolist(), strict=True):
                        confusion[ACTS[own]][ACTS[other]] += 1
    scores = {name: right[name] / count for name, count in seen.items()}
    return scores | {f"act {name}": row[name] / row.total() for name, row in confusion.items()}
