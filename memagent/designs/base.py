"""The slots of a memory design, as protocols, and the design itself, as a value.

A design fills up to nine slots; a new paper is a new filling, never a new branch.
Slots are plain async callables: they take records and a `SlotContext` and return
records. They never write: only the bank commits, after `validate_ops`. Extractor and
manager are called once a chunk, the indexer once a session after its last chunk,
retriever and answerer once a question, feedback and learner once a report, the keeper
by `tidy`, the compactor by `compact`. An empty proposal is a legal answer ("nothing
worth keeping").

Prompts as versioned text files, and fences around the texts that they quote.

A prompt file has a header (name, version, role, perhaps the names in its examples), the
system message, a line `=== user ===`, and the user message. `{{slot}}` marks a value to
fill in; values are put in once and never searched for slots again. The file's digest
goes with every request, so a trace names the exact wording.

Everything quoted (turns, facts, memories, questions) passes `quoted`: one line, and no
`<` that could open a tag, so no text can close its own fence, open another, or write a
chat template's control mark. The surprise: `<3` and `a < b` stay; `<b` gets a
guillemet.

Utilities learned from outcomes: how the reward of a trial moves an item's value.

`report` counts the uses of the credited items itself; a `Feedback` says only what each
item is worth afterwards. It is a pure function, so it runs inside the journal's append
and counts again when another writer came first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, runtime_checkable

from memagent.core.answers import Answer, Hit, Question
from memagent.core.errors import ConfigError, ModelError, boundary
from memagent.core.exchange import (
    JsonSchema,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    StepRef,
    ToolSpec,
    Usage,
)
from memagent.core.ops import MemoryOp, OpLimits, ParseStatus, Rejected, Repair
from memagent.core.records import Chunk, Fact, Id, ItemStats, Record, Session, Text
from memagent.core.snapshot import Commit, GraphDelta
from memagent.core.trials import Edit, Trial
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel, Clock

if TYPE_CHECKING:
    from memagent.core.workspace import Workspace
    from memagent.state.backing import Guard

BY_RULES: Final = "remembered by the rules, as the model's replies could not be read"
"""The reason of ops that stand in for a model's."""
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_HEADER = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_USER = "\n=== user ===\n"
_TAG = re.compile(r"""<(?!$|[\d=-]|\s[\w("'])""")
_CONTROL = re.compile(
    r"\[(?=[/\sA-Za-z])(?=/?\s*(?:INST|SYS|SYSTEM|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT"
    r"|AVAILABLE_TOOLS|MODEL_SETTINGS|ARGS|CALL_ID|THINK|PREFIX|MIDDLE|SUFFIX)\b)",
    re.IGNORECASE,
)
# Characters that a model reads and a person does not see: bidirectional marks, tags, blank
# letters and zero-width ones. The two joiners stay between letters of scripts that need them,
# and in emoji.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    r"|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


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
        # One pass: a value that looks like a slot stays as it is.
        system, user = (
            _SLOT.sub(lambda match: values[match[1]], part) for part in self.text.split(_USER)
        )
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


class Feedback(Protocol):
    """Turns a trial that ended into the values of the items that it credits."""

    def __call__(self, trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
        """Return new values by item id; `stats` are those counted with this trial."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunningValue:
    """Moves each credited item's value towards its reward: q + alpha (r - q)."""

    alpha: float = 0.3

    def __call__(self, trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
        """Return the values of the items with credit."""
        return {
            credit.id: stats[credit.id].q_value
            + self.alpha * (credit.reward - stats[credit.id].q_value)
            for credit in trial.credit
        }


T = TypeVar("T")


class Proposal(Record, Generic[T]):
    """Values that a slot proposes, in order, with the entries that could not be read."""

    values: tuple[T, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    parse: tuple[ParseStatus, ...] = ()
    """Parse status of each model call; empty for a slot that asked no model."""
    repairs: tuple[Repair, ...] = ()
    """What was mended to read the replies, call by call."""
    responses: tuple[ModelResponse, ...] = ()
    """The model calls behind the proposal."""


class ToolsWanted(Exception):
    """The answerer's model asks for tools before it answers; no failure."""

    def __init__(self, response: ModelResponse) -> None:
        super().__init__(", ".join(call.name for call in response.tool_calls))
        self.response = response


class Related(Record):
    """A fact with the memories that bear on it.

    Vector and lexical hits come first, then their one-hop graph neighbours.
    """

    fact: Fact
    hits: tuple[Hit, ...] = ()


@dataclass(slots=True)
class Trail:
    """Calls and notes that a slot leaves beside its result, for reports and answers."""

    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """Every model call made through the context, in order of completion."""
    notes: list[str] = field(default_factory=list[str])
    """Remarks for the reader of the answer."""

    @property
    def usage(self) -> Usage:
        """The cost of all calls."""
        return sum((response.usage for response in self.responses), Usage())


@dataclass(frozen=True, kw_only=True)
class SlotContext:
    """The model, the memory and the surroundings that a slot may use."""

    model: ChatModel
    bank: MemoryBank
    clock: Clock
    session: Session | None = None
    chunk: Chunk | None = None
    tools: tuple[ToolSpec, ...] = ()
    """Tools the answerer's calls may ask for."""
    transcript: tuple[Message, ...] = ()
    """Tool calls and their results so far, for the answerer."""
    sampling: Mapping[Role, Sampling] = field(default_factory=dict[Role, Sampling])
    """Decoding settings by role; a role that is absent uses the provider's defaults."""
    strict: bool = False
    """Whether a second unreadable reply ends a slot's work."""
    again: bool = True
    """Whether an unreadable reply may be asked for again."""
    trail: Trail = field(default_factory=Trail, compare=False)

    async def call(
        self,
        role: Role,
        messages: Sequence[Message],
        *,
        schema: JsonSchema | None = None,
        question_id: str | None = None,
        call: int = 0,
        prompt_digest: str = "",
    ) -> ModelResponse:
        """Ask the model in a role.

        The step names session, chunk and `call` (0 for the first call of a role in a
        chunk). The answerer's calls carry the context's tools and transcript; when the
        model asks for tools, `ToolsWanted` hands them to the answer graph, which runs
        them and calls the answerer again.
        """
        answering = role is Role.ANSWERER
        chunk, session = self.chunk, self.session
        step = StepRef(
            session_id=chunk.session_id if chunk else session.id if session else None,
            chunk_index=chunk.index if chunk else None,
            question_id=question_id,
            call=call,
        )
        with boundary(ModelError, role.value):
            response = await self.model.complete(
                ModelRequest(
                    role=role,
                    step=step,
                    messages=(*messages, *(self.transcript if answering else ())),
                    schema=schema,
                    tools=self.tools if answering else (),
                    sampling=self.sampling.get(role, Sampling()),
                    prompt_digest=prompt_digest,
                )
            )
        self.trail.responses.append(response)
        if answering and self.tools and response.tool_calls:
            raise ToolsWanted(response)
        return response


class Extractor(Protocol):
    """Turns a chunk into facts."""

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Propose facts, in order."""
        ...


class Manager(Protocol):
    """Turns facts, each with the memories about it, into ops."""

    async def __call__(self, related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
        """Propose ops, in order."""
        ...


class Indexer(Protocol):
    """Turns a session's commits into its additions to the event graph."""

    async def __call__(self, commits: Sequence[Commit], ctx: SlotContext, /) -> GraphDelta:
        """Return the additions; called once, after the last chunk."""
        ...


class Retriever(Protocol):
    """Finds the hits for a question, best first; [] when nothing fits."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the hits."""
        ...


class Answerer(Protocol):
    """Answers a question from hits.

    The `cite` step drops citations of hits that were not shown.
    """

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the answer with its citations, unchecked."""
        ...


class Lesson(Record):
    """The ops and counts that a design wants to keep of a trial.

    Ops cite turns of the trial's session (`Trial.session`); counts write no version.
    """

    ops: tuple[MemoryOp, ...] = ()
    counts: tuple[tuple[Id, Text, float], ...] = ()
    """(item, counter, by how much)."""
    rejected: tuple[Rejected, ...] = ()
    """What a model proposed and could not be read."""


class Learner(Protocol):
    """Turns a trial with its outcome into a lesson; called once for each report."""

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return the lesson; an empty one is legal."""
        ...


class Keeper(Protocol):
    """Keeps a memory within bounds: prunes, merges or rewrites; called by `tidy`."""

    async def __call__(self, budget: int | None, ctx: SlotContext, /) -> Sequence[MemoryOp]:
        """Return ops on active items; `budget` is the most items afterwards, if any."""
        ...


class Compactor(Protocol):
    """Keeps the workspace of a trial small; called by `compact`, best after each step."""

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return an edit, its `at` ignored, or None to leave the workspace as it is."""
        ...


@dataclass(frozen=True, kw_only=True)
class RelateSettings:
    """Limits on the memories shown to the manager for each fact."""

    k: int = 5
    """Most items a fact by vector, and as many by keyword."""
    min_cosine: float = 0.1
    same_subject: bool = True
    """Show only items of the fact's speaker or subject, when it has one."""
    cap: int = 25
    """Most items a chunk."""
    recent: int = 0
    """Latest items of the fact's speaker that are shown besides, however unlike."""
    graph: bool = True
    """Show one-hop graph neighbours of the hits too."""
    graph_cap: int = 10
    """Most neighbours a chunk."""


@dataclass(frozen=True, kw_only=True)
class MemoryDesign:
    """A memory design: the callables that fill its slots, and their limits."""

    name: str
    extractor: Extractor
    manager: Manager
    indexer: Indexer
    retriever: Retriever
    answerer: Answerer
    feedback: Feedback = RunningValue()
    """How a reward moves the value of the items that a trial used."""
    learner: Learner | None = None
    """None keeps nothing of a trial beside its text and counts."""
    keeper: Keeper | None = None
    """None is the shared keeper: what was used and is worth least goes first."""
    compactor: Compactor | None = None
    """None keeps the whole history of a trial in its workspace."""
    limits: OpLimits = OpLimits()
    guard: Guard | None = None
    """What holds a model's ops to what was told; None where the op is the policy's deed."""
    relate: RelateSettings = RelateSettings()
    chunk_turns: int = 8
    """Most turns a chunk; sessions are cut into balanced chunks."""
    needs_model: bool = True

    @property
    def prompt_digests(self) -> dict[str, str]:
        """SHA-256 (64 hex digits) of every prompt file the slots use, by prompt name.

        Names are in order; {} when no slot asks a model.
        """
        prompts = prompts_of(*vars(self).values())
        return dict(sorted((prompt.name, prompt.digest) for prompt in prompts))


async def no_indexer(
    commits: Sequence[Commit],  # noqa: ARG001 - interface
    ctx: SlotContext,
    /,
) -> GraphDelta:
    """Add nothing to the event graph beyond the edges that follow from the ops."""
    return GraphDelta(session_id=ctx.session.id if ctx.session else None)
