"""Prompts as versioned text files, and fences around the texts that they quote.

A prompt file has a header (name, version, role, perhaps the names in its examples), the
system message, a line `=== user ===`, and the user message. `{{slot}}` marks a value to
fill in; values are put in once and never searched for slots again. The file's digest
goes with every request, so a trace names the exact wording.

Everything quoted (turns, facts, memories, questions) passes `quoted`: one line, and no
`<` that could open a tag, so no text can close its own fence, open another, or write a
chat template's control mark. The surprise: `<3` and `a < b` stay; `<b` gets a
guillemet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol, runtime_checkable

from memagent.core.errors import ConfigError
from memagent.core.exchange import Message, Role

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_HEADER = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_USER = "\n=== user ===\n"
_TAG = re.compile(r"""<(?!$|[\d=-]|\s[\w("'])""")
_CONTROL = re.compile(
    r"\[(?=[/\sA-Za-z])(?=/?\s*(?:INST|SYS|SYSTEM|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT"
    r"|AVAILABLE_TOOLS|MODEL_SETTINGS|ARGS|CALL_ID|THINK|PREFIX|MIDDLE|SUFFIX)\b)",
    re.IGNORECASE,
)
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
"""Characters that a model reads and a person does not see: bidirectional marks, tags, blank
letters and zero-width ones. The two joiners stay between letters of scripts that need
them, and in emoji.
"""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt file.

    `text` is the whole body, `digest` the SHA-256 of the file's text as 64 hex digits.
    """

    name: str
    version: int
    role: Role
    text: str
    digest: str
    examples: tuple[str, ...] = ()
    """Names that only its examples bear; a reply that uses one repeats the prompt."""

    @property
    def slots(self) -> frozenset[str]:
        """The names of the slots to fill."""
        return frozenset(_SLOT.findall(self.text))

    def messages(self, **values: str) -> tuple[Message, ...]:
        """Fill every slot and return the system and the user message.

        Raises `ConfigError` when names and slots differ.
        """
        if values.keys() != self.slots:
            raise ConfigError(
                f"prompt {self.name!r} has the slots {sorted(self.slots)}, not {sorted(values)}"
            )
        system, user = (render(part, values) for part in self.text.split(_USER))
        return (
            Message(role="system", content=system.strip()),
            Message(role="user", content=user.strip()),
        )


@runtime_checkable
class Prompted(Protocol):
    """A part of a design that asks a model with prompt files."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts that the part and its own parts may use."""
        ...


@dataclass(frozen=True, kw_only=True)
class OnePrompt:
    """Base of a part that asks with one prompt file."""

    prompt: str

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)


def prompts_of(*parts: object) -> tuple[Prompt, ...]:
    """Return the prompts of those parts that have any, in order."""
    return tuple(prompt for part in parts if isinstance(part, Prompted) for prompt in part.prompts)


@cache
def load_prompt(name: str) -> Prompt:
    """Load the prompt `name` that is shipped with the package.

    Raises `ConfigError` for an unknown name.
    """
    folder = files("memagent.designs") / "prompts"
    known = sorted(
        entry.name.removesuffix(".md") for entry in folder.iterdir() if entry.name.endswith(".md")
    )
    if name not in known:
        raise ConfigError(f"no prompt {name!r}; there are {', '.join(known)}")
    return parse_prompt((folder / f"{name}.md").read_text(encoding="utf-8"))


def parse_prompt(text: str) -> Prompt:
    """Read a prompt from the text of its file.

    Raises `ConfigError` when the header or the user part is missing or wrong.
    """
    text = text.replace("\r\n", "\n")
    match = _HEADER.match(text)
    if match is None or match[2].count(_USER) != 1:
        raise ConfigError(
            "a prompt file is a header between --- lines, a system message, "
            "one line === user === and a user message"
        )
    header = dict(part.split(": ", 1) for part in match[1].splitlines() if ": " in part)
    try:
        name, version, role = header["name"], int(header["version"]), Role(header["role"])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            "a prompt's header needs name, version (a number) and role "
            f"(one of {', '.join(Role)}): {error}"
        ) from error
    return Prompt(
        name=name,
        version=version,
        role=role,
        text=match[2],
        digest=hashlib.sha256(text.encode()).hexdigest(),
        examples=tuple(filter(None, header.get("examples", "").split(", "))),
    )


def render(template: str, values: dict[str, str]) -> str:
    """Fill the slots of a template in one pass; a value that looks like a slot stays as it is."""
    return _SLOT.sub(lambda match: values[match[1]], template)


def quoted(text: str) -> str:
    """Make a text safe to quote: one line, nothing unseen, no mark that could open a tag."""
    line = " ".join(text.split())
    if not line.isascii():
        line = " ".join(_UNSEEN.sub("", line).split())
    if "<" in line:
        line = _TAG.sub("\u2039", line)
    return _CONTROL.sub("\uff3b", line) if "[" in line else line


def fence(tag: str, lines: Iterable[str]) -> str:
    """Put lines, made of `quoted` parts, between `<tag>` and `</tag>`; `(none)` without lines."""
    return "\n".join((f"<{tag}>", *(list(lines) or ["(none)"]), f"</{tag}>"))
