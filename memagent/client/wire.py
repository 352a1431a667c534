"""The bodies of requests and responses of the REST service, for service and client.

Responses are the records of `memagent.core` wherever one fits, which can be imported from
here as well; these are HTTP's own.
Times are RFC 3339 in UTC, names in snake_case, ids opaque. Bodies about review, traces
and erasure come first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field

from memagent.core.answers import (
    MAX_QUESTION_CHARS as MAX_QUESTION_CHARS,
    Answer as Answer,
    AsOf as AsOf,
    Filter as Filter,
    Hit as Hit,
    Question as Question,
    Reply as Reply,
    SearchEvidence,
)
from memagent.core.recipes import RecipeField
from memagent.core.records import (
    DEFAULT_THREAD,
    MAX_TURN_CHARS,
    Event,
    EventEdge,
    Id,
    MemoryItem,
    Metadata,
    Moment,
    Record,
    Scope,
    Session,
    Text,
    TimeSpan,
    Trust,
)
from memagent.core.snapshot import (
    Commit,
    ErasureReceipt as ErasureReceipt,
    GraphStats as GraphStats,
    HistoryEntry,
    IngestReport as IngestReport,
    JournalRow,
    Quarantined as Quarantined,
    SourceFilter as SourceFilter,
    Touched as Touched,
)
from memagent.core.trials import (
    Edit,
    Reward,
    Trial as Trial,
    TrialStep,
)
from memagent.experience import (
    Learned as Learned,
    OutcomeArguments as OutcomeArguments,
    Recall as Recall,
)
from memagent.memory.options import MAX_ITEM_ID_CHARS, MAX_TEXT_CHARS


class QuarantineList(Record):
    """The changes that wait for review, oldest first."""

    items: tuple[Quarantined, ...]


class TouchedList(Record):
    """Every memory that rests on a source, in order of id."""

    items: tuple[Touched, ...]


class TakenBack(Record):
    """The commit that takes back what a source touched; null when there was nothing."""

    commit: Commit | None = None


MAX_BATCH = 1_000
"""Most memories of one batch."""
MAX_TURNS = 2_000
"""Most turns of one session over HTTP."""
MAX_PAGE = 1_000
"""Most entries of one page."""
MAX_K = 1_000
"""Most hits of one search."""
_Word = Annotated[Text, Field(max_length=256)]
_Words = Annotated[Text, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
_K = Annotated[int, Field(ge=1, le=MAX_K)]
_Budget = Annotated[int, Field(ge=1, le=10_000_000)]


E = TypeVar("E")


class Page(Record, Generic[E]):
    """Entries of a list, and where the next ones begin."""

    items: tuple[E, ...]
    next_cursor: Text | None = None
    """Give it as `cursor` for the next page; null on the last one."""


class NewMemory(Record):
    """A memory to keep as it is."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    id: Annotated[Text, Field(min_length=1, max_length=MAX_ITEM_ID_CHARS)] | None = None
    kind: _Word = "fact"
    subject: _Word | None = None
    speaker: _Word | None = None
    valid: TimeSpan | None = None
    said_at: Moment | None = None
    source_turn_ids: Annotated[tuple[Id, ...], Field(max_length=MAX_TURNS)] = ()
    tags: Annotated[tuple[_Word, ...], Field(max_length=100)] = ()
    metadata: Metadata = Field(default_factory=dict[str, str | int | float | bool | None])
    ttl_s: Annotated[float, Field(gt=0, le=1e11)] | None = None
    """Seconds until it expires; give this or `expires_at`."""
    expires_at: Moment | None = None


class NewMemories(Record):
    """Memories to keep in one durable write, all or none."""

    texts: Annotated[
        tuple[Annotated[Text, Field(min_length=1, max_length=MAX_TEXT_CHARS)], ...],
        Field(min_length=1, max_length=MAX_BATCH),
    ]
    kind: _Word = "fact"
    subject: _Word | None = None


class MemoryChange(Record):
    """A new version of a memory; what is left out stays."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
    valid: TimeSpan | None = None
    version: Annotated[int, Field(ge=1)] | None = None
    """Only if this is still the latest version; an `If-Match` header says the same."""


class NewTurn(Record):
    """One utterance; an id is made where none is given."""

    speaker: Annotated[Id, Field()] = "user"
    text: Annotated[Text, Field(min_length=1, max_length=MAX_TURN_CHARS)]
    id: Id | None = None
    at: Moment | None = None
    image_caption: Annotated[Text, Field(max_length=MAX_TURN_CHARS)] | None = None
    trust: Trust = Trust.USER
    """`system` needs a key with the scope `admin`."""
    recalled: bool = False


class NewSession(Record):
    """A session of turns to remember; `at` defaults to now."""

    id: Id | None = None
    at: Moment | None = None
    turns: Annotated[tuple[NewTurn, ...], Field(min_length=1, max_length=MAX_TURNS)]


class SearchRequest(Record):
    """A search: its text, filter and recipe."""

    text: Annotated[Text, Field(max_length=MAX_QUESTION_CHARS)]
    k: _K = 10
    where: Filter = Filter()
    as_of: AsOf = AsOf()
    recipe: RecipeField | None = None
    max_tokens: _Budget | None = None
    explain: bool = False
    """Whether every hit tells what its score is made of."""
    evidence: bool = False
    """Whether to tell how well the hits answer."""
    abstain_below: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Give no hits where the probability that they answer is lower."""


class ContextRequest(Record):
    """The text block for a prompt."""

    text: Annotated[Text, Field(max_length=MAX_QUESTION_CHARS)]
    k: _K = 20
    where: Filter = Filter()
    as_of: AsOf = AsOf()
    recipe: RecipeField | None = None
    max_tokens: _Budget = 2_000


class ChatRequest(Record):
    """A message of a conversation, which the agent replies to and remembers."""

    text: _Words
    speaker: Id = "user"
    thread: Id = DEFAULT_THREAD
    """The conversation that it belongs to."""
    system: _Words | None = None
    """Replaces the system message of the shipped prompt."""
    min_trust: Trust | None = None
    """Recall nothing that is trusted less."""


class UndoRequest(Record):
    """The commit to take back; the last one when left out."""

    commit_id: Id | None = None


class NewSnapshot(Record):
    """A name for a snapshot, for people."""

    name: _Word = ""


class Hits(Record):
    """The hits of a search, best first."""

    hits: tuple[Hit, ...]
    evidence: SearchEvidence | None = None
    """The evidence of the hits, if that was asked for."""


class Context(Record):
    """A block for a prompt: the memories as quoted lines between tags, never as instructions."""

    text: Text
    """"" when nothing fits."""
    memory_ids: tuple[Text, ...]


class MemoryPage(Page[MemoryItem]):
    """A page of memories, oldest said first."""


class MemoryList(Record):
    """Memories written together."""

    items: tuple[MemoryItem, ...]


class History(Record):
    """Every change of a memory, oldest first."""

    entries: tuple[HistoryEntry, ...]


class SessionPage(Page[Session]):
    """A page of stored sessions, oldest first."""


class EventPage(Page[Event]):
    """A page of the open events of the graph, by id."""


class Neighbour(Record):
    """An edge at a node, with the node at its other end."""

    edge: EventEdge
    outgoing: bool
    node: Event


class Neighbours(Record):
    """A node and what is one edge away."""

    node: Event
    neighbours: tuple[Neighbour, ...]


class LogPage(Page[JournalRow]):
    """A page of the journal, oldest first."""


class Deleted(Record):
    """The number of deleted memories."""

    deleted: int


class SnapshotInfo(Record):
    """A named point of the journal, and the digest of the memory there.

    It holds no words itself.
    """

    id: Id
    name: Text = ""
    digest: Text
    seq: int
    items: int
    created_at: Moment


class SnapshotPage(Page[SnapshotInfo]):
    """A page of snapshots, oldest first."""


class Fork(Record):
    """A new memory that starts from a snapshot: name its `run_id` to use it."""

    user_id: Id
    agent_id: Id | None = None
    run_id: Id
    digest: Text


class JobKind(StrEnum):
    """The kind of a job."""

    INGEST = "ingest"
    EXPORT = "export"
    ERASE = "erase"
    """Every memory of a user."""
    RESET = "reset"
    """One memory."""


class JobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Given up after several tries, or cancelled; what it is about is stored, and `POST
    /v1/jobs/{id}/retry` tries again.
    """


class Job(Record):
    """Work that goes on after the answer and survives a restart."""

    id: Id
    kind: JobKind
    state: JobState
    user_id: Id
    session_id: Text | None = None
    attempts: int = 0
    error: Text | None = None
    """Code of what went wrong in the last try."""
    result: dict[str, Any] | None = None
    """Counts; for exports and erasures a receipt."""
    created_at: Moment
    updated_at: Moment


class JobPage(Page[Job]):
    """A page of a user's jobs, the newest first."""


class NewTrial(Record):
    """A task to recall memories for."""

    task: _Words
    k: _K = 10
    recipe: RecipeField | None = None


class TrialOutcome(Record):
    """The outcome of a trial."""

    reward: Reward
    success: bool | None = None
    """Whether the task was done; None reads it off the reward."""
    detail: Annotated[Text, Field(max_length=MAX_TEXT_CHARS)] = ""
    """Why, for the learner; no search reads it."""
    steps: Annotated[tuple[TrialStep, ...], Field(max_length=1_000)] = ()
    credit: Annotated[dict[Text, Reward] | None, Field(max_length=MAX_K)] = None
    """Reward by memory id; None credits the memories used in the steps, else all shown."""
    edits: Annotated[tuple[Edit, ...], Field(max_length=2_000)] = ()
    """Changes of the trial's workspace, in order."""

    def arguments(self) -> OutcomeArguments:
        """Return the keywords of `AsyncAgent.report`; the reward is an argument of its own."""
        return {
            "success": self.success,
            "detail": self.detail,
            "steps": self.steps,
            "credit": self.credit,
            "edits": self.edits,
        }


class TrialPage(Page[Trial]):
    """A page of trials, the newest first."""


class TidyRequest(Record):
    """The way to tidy a memory."""

    budget: Annotated[int, Field(ge=0)] | None = None
    """The most memories afterwards."""


class Tidied(Record):
    """The changes of tidying; None for nothing."""

    commit: Commit | None = None


class UserPage(Page[Scope]):
    """A page of memories by their names: a user, and where it is narrowed, agent and run."""


class Health(Record):
    """The health of the service."""

    status: Literal["ok", "degraded", "stopping"]
    version: str = ""
    notes: tuple[str, ...] = ()


class ModelEntry(Record):
    """A model in OpenAI's format."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "memagent"


class ModelList(Record):
    """Models in OpenAI's format."""

    object: Literal["list"] = "list"
    data: tuple[ModelEntry, ...]
