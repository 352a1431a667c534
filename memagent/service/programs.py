"""Chat programs: whose words a request holds, of which thread, and what a program wrote itself.

`programs.toml` is the table of those that are shipped; `[service.programs]` of the
settings adds to it. Programs send prompts of their own through the address at which
people talk: titles, tags, summaries. The model answers such a prompt, and memory knows
nothing of it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memagent.config import ProgramSettings
from memagent.core.records import content_id
from memagent.readers.files import list_in, object_in

_TABLE: Final = Path(__file__).with_name("programs.toml")
# Less text than this before a user's words is a tag, and tells the model nothing.
_TAG_CHARS: Final = 20
# Longest name of a thread; a longer one is known by its digest.
_MOST_CHARS: Final = 256
_TEXT_FIELDS: Final = ("instructions", "system", "prompt", "input")


def table_of(more: Mapping[str, ProgramSettings]) -> tuple[ProgramSettings, ...]:
    """Return the shipped programs and those of the settings, which come first."""
    shipped = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    read = {name: ProgramSettings.model_validate(shipped[name]) for name in shipped}
    # `more` twice: the first puts its programs before the shipped ones, the last has them
    # replace shipped ones of the same names.
    return tuple({**more, **read, **more}.values())


@dataclass(frozen=True)
class Asker:
    """The sender of a request: its user and conversation, as the known programs name them.

    `programs` are those whose `client` pattern fits. `user` and `thread` are None where no
    place of theirs holds a name.
    """

    programs: tuple[ProgramSettings, ...] = ()
    user: str | None = None
    thread: str | None = None
    task: bool = False
    """Whether a program wrote the prompt itself, such as for a title: a pattern of `tasks` fits."""

    @classmethod
    def of(
        cls, table: Iterable[ProgramSettings], headers: Mapping[str, str], body: object
    ) -> Asker:
        """Read who asks from the headers and the body of a request."""
        clients = [headers.get(name, "") for name in ("user-agent", "originator")]
        programs = tuple(
            each for each in table if any(each.client.search(client) for client in clients)
        )
        texts = list(_texts(object_in(body)))
        thread = _first((place for each in programs for place in each.thread), headers, body)
        return cls(
            programs=programs,
            user=_first((place for each in programs for place in each.user), headers, body),
            thread=content_id("thr", thread) if thread and len(thread) > _MOST_CHARS else thread,
            task=any(
                pattern.match(text) for each in programs for pattern in each.tasks for text in texts
            ),
        )

    def parted(self, text: str) -> tuple[str, str]:
        """Return a user's own words in a text, and the text to show the model as a note.

        The note is "" or the whole text. A text that fits `notes` is a note without words of
        the user. One that fits `words` is a note too, unless it adds only a short tag.
        """
        if any(pattern.match(text) for each in self.programs for pattern in each.notes):
            return "", text
        patterns = (pattern for each in self.programs for pattern in each.words)
        match = next(filter(None, (pattern.match(text) for pattern in patterns)), None)
        if match is None:
            return text, ""
        # Little stands before the words, and nothing after the part that matched.
        only_tagged = match.start(1) < _TAG_CHARS and len(match[0]) == len(text.rstrip())
        return match[1].strip(), "" if only_tagged else text


def _first(places: Iterable[str], headers: Mapping[str, str], body: object) -> str | None:
    """Return the name at the first place that holds one; None when none does.

    A place is `header:NAME`, or the dotted path of a field of the body. A `~` and a
    pattern may follow; the name is then its first group, wherever in the value it fits.
    """
    for place in places:
        path, _, pattern = place.partition("~")
        header = path.partition("header:")[2]
        value: object = headers.get(header) if header else body
        for key in () if header else path.split("."):
            value = object_in(value).get(key)
        match = re.search(pattern or "(.+)", value, re.DOTALL) if isinstance(value, str) else None
        if match is not None:
            return match[1]
    return None


def _texts(body: dict[str, object]) -> Iterator[str]:
    """Yield the texts of a body in which a program may write a prompt of its own.

    They are the fields `_TEXT_FIELDS`, all messages of the roles system and developer, and
    the last message of the user; without white space in front.
    """
    messages = [object_in(row) for key in ("messages", "input") for row in list_in(body.get(key))]
    told = [each.get("content") for each in messages if each.get("role") in ("system", "developer")]
    asked = [each.get("content") for each in messages if each.get("role") == "user"]
    for content in (*map(body.get, _TEXT_FIELDS), *told, *asked[-1:]):
        for part in list_in(content) or [content]:
            text = object_in(part).get("text", part)
            if isinstance(text, str):
                yield text.lstrip()
