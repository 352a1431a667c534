"""The bodies of responses about review, traces and erasure, for service and client."""

from __future__ import annotations

from memagent.core.records import Record
from memagent.core.reports import Quarantined, Touched
from memagent.core.snapshot import Commit


class QuarantineList(Record):
    """The changes that wait for review, oldest first."""

    items: tuple[Quarantined, ...]


class TouchedList(Record):
    """Every memory that rests on a source, in order of id."""

    items: tuple[Touched, ...]


class TakenBack(Record):
    """The commit that takes back what a source touched; null when there was nothing."""

    commit: Commit | None = None
