"""The maps of a state as tables: how each kind of value is written and read.

Records are JSON, as in the journal; small plain values have their own short forms. A
map that was itself opened from a checkpoint hands its unchanged entries over as they
are, undecoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter
from rpds import HashTrieMap

from memagent.checkpoints.file import CheckpointFile, SectionWriter
from memagent.checkpoints.layered import LayeredMap, layers_of
from memagent.checkpoints.tables import Pause, RecordTable, encoded, paced, put_records
from memagent.core.records import ItemStats, MemoryItem, Record, Session
from memagent.core.trials import Trial
from memagent.state.fold import BankState, Mark
from memagent.state.sorted_set import SortedSet

R = TypeVar("R", bound=Record)
_PAST: Final = TypeAdapter(tuple[MemoryItem, ...])


@dataclass(frozen=True, slots=True)
class Form:
    """The way in which the values of one map are written and read."""

    encode: Callable[[Any], bytes]
    decode: Callable[[memoryview], Any]


def record_form(kind: type[R]) -> Form:
    """Return the form of a record: its JSON."""

    def decode(raw: memoryview) -> R:
        return kind.model_validate_json(bytes(raw))

    return Form(_json_of_record, decode)


def _json_of_record(record: Record) -> bytes:
    return record.model_dump_json().encode()


def _text(raw: memoryview) -> str:
    return str(raw, "utf-8", "surrogatepass")


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode_place(place: tuple[str, int]) -> bytes:
    return encoded(f"{place[1]} {place[0]}")


def _decode_place(raw: memoryview) -> tuple[str, int]:
    position, _, session_id = _text(raw).partition(" ")
    return session_id, int(position)


def _decode_marks(raw: memoryview) -> SortedSet[Mark]:
    return SortedSet((start, end, item_id) for start, end, item_id in json.loads(bytes(raw)))


FORMS: Final[Mapping[str, Form]] = {
    "items": record_form(MemoryItem),
    "archive": Form(_PAST.dump_json, lambda raw: _PAST.validate_json(bytes(raw))),
    "sessions": record_form(Session),
    "turns": Form(_encode_place, _decode_place),
    "threads": Form(_dump, lambda raw: tuple(json.loads(bytes(raw)))),
    "stats": record_form(ItemStats),
    "trials": record_form(Trial),
    "ordinals": Form(lambda count: b"%d" % count, lambda raw: int(bytes(raw))),
    "done": Form(
        lambda chunks: _dump(sorted(chunks)), lambda raw: frozenset(json.loads(bytes(raw)))
    ),
    "touched": Form(_dump, lambda raw: tuple(json.loads(bytes(raw)))),
    "texts": Form(encoded, _text),
    "timelines": Form(lambda marks: _dump(list(marks)), _decode_marks),
    "expiring": Form(
        lambda moment: moment.isoformat().encode(),
        lambda raw: datetime.fromisoformat(_text(raw)),
    ),
}
"""The maps of a state that are tables of their own, by name; the graph is apart."""


def maps_of(state: BankState) -> dict[str, Mapping[str, Any]]:
    """Return the maps of a state by their names in `FORMS`."""
    return {name: getattr(state, name) for name in FORMS}


def put_map(
    writer: SectionWriter, name: str, content: Mapping[str, Any], form: Form, pause: Pause
) -> list[bytes]:
    """Write a map as a table; return its keys in the order written."""
    records = list(paced(encoded_entries(content, form), pause))
    put_records(writer, name, records)
    return [key for key, _ in records]


def encoded_entries(
    content: Mapping[str, Any], form: Form
) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Yield (key, encoded value), what a map's base has first and in the base's order."""
    layers = layers_of(content)
    entries: Iterable[tuple[str, Any]] = content.items()
    if layers is not None:
        table = cast("RecordTable[Any]", layers.base)
        for _, at in layers.unchanged():
            yield table.raw_key(at), table.raw(at)
        entries = layers.changed()
    encode = form.encode
    for key, value in entries:
        yield encoded(key), encode(value)


def read_map(file: CheckpointFile, name: str, form: Form) -> Any:
    """Return a map of the file; an empty one is an ordinary empty map."""
    table: RecordTable[Any] = RecordTable(file, name, form.decode)
    empty: Any = HashTrieMap()
    return LayeredMap(table) if len(table) else empty
