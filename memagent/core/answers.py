"""Questions, hits and answers, and the event graph as a document.

`GraphDocument` holds the nodes and edges of one memory and the turns they rest on;
files and pages are written from it. Topics are nodes here like any other, although the
journal holds none. Nodes come in the order of their kinds and stories, edges by their
ends, so equal memories give equal documents. Every turn that a node or an edge names
and the memory has is in `turns`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from memagent.core.exchange import ToolCall, Usage
from memagent.core.recipes import RecipeField
from memagent.core.records import (
    Event,
    Id,
    MemoryItem,
    Moment,
    NodeKind,
    Record,
    Relation,
    Scope,
    Text,
    TimeSpan,
    Trust,
    as_utc,
)

MAX_QUESTION_CHARS = 20_000
"""Longest question, in characters."""
MAX_RULED_CHARS = 2_000
"""Rules read so many characters of a question at most; search reads all of it."""
MAX_ASKED_TIMES = 20
"""Most times that are read in a question."""


class AsOf(Record):
    """A point on each time axis, all optional and composable.

    `recorded` shows what the journal held then; `said` what had been said by then;
    `valid` what held at that moment of the told world. A plain date or moment in its place
    stands for `said`, a date with its whole day.
    """

    recorded: int | Moment | None = None
    """A moment, or a journal sequence number."""
    said: Moment | None = None
    valid: Moment | None = None

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: object) -> object:
        """Read a moment or a whole day, written in ISO's form, as what had been said by then."""
        if not isinstance(given, str):
            return given
        said, text = as_utc(datetime.fromisoformat(given.strip())), given.strip()
        day = timedelta(days=1, microseconds=-1)
        return {"said": said + day if len(text) <= len("2024-05-01") else said}

    @property
    def now(self) -> bool:
        """Whether no axis is set."""
        return self.recorded is None and self.said is None and self.valid is None


class Filter(Record):
    """Conditions on items; every field that is set must match.

    An item matches a set if it has one of its members.
    """

    speakers: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    session_ids: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    ids: frozenset[str] = frozenset()
    valid: TimeSpan | None = None
    """Keep items whose valid span overlaps this one (items without a span are left out)."""
    said: TimeSpan | None = None
    min_trust: Trust | None = None
    """Keep items that are trusted at least so far; events go by the turns they rest on."""

    @property
    def empty(self) -> bool:
        """Whether nothing is filtered."""
        return self == _NO_FILTER


_NO_FILTER = Filter()


class Query(Record):
    """A search over one bank."""

    text: Text
    where: Filter = Filter()
    arms: frozenset[str] = frozenset({"dense", "lexical"})
    """Which kinds of arms may take part: `dense`, `lexical`."""
    recipe: RecipeField | None = None
    """How to search, a `Recipe` or the name of one; None is `plain`."""
    asked_at: Moment | None = None
    """When it is asked, for relative times and for decay; None is the bank's clock."""


class Question(Record):
    """A question to the answer agent."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    id: Text | None = None
    asked_at: Moment | None = None
    """When it is asked; relative phrases in the question resolve against it. Defaults to
    the agent's clock.
    """
    where: Filter = Filter()
    as_of: AsOf = AsOf()
    k: Annotated[int, Field(ge=1, le=1_000)] = 30
    recipe: RecipeField | None = None
    """How to search, a `Recipe` or the name of one; None leaves it to the agent and its
    design.
    """


class Relevance(Record):
    """The reasons for a hit: rank and score in each arm, weights, and the way to it.

    A search's score is `fused` times all `factors`; with a `rerank` score it is 1 plus
    that score's logistic.
    """

    arms: dict[str, float] = Field(default_factory=dict[str, float])
    """Raw score per arm (`dense` and `session` are cosines, `lexical` a BM25 score,
    `graph` a share of a walk).
    """
    ranks: dict[str, int] = Field(default_factory=dict[str, int])
    """Rank per arm from 1."""
    via: tuple[tuple[str, Relation, bool], ...] = ()
    """Path of (node id, relation, forward?) by which a walk reached it, seed first."""
    fused: float | None = None
    """Weighted sum over the arms, or for an added neighbour its share of the score of the
    hit beside it.
    """
    factors: dict[str, float] = Field(default_factory=dict[str, float])
    """What the score was multiplied by: `time`, `recency`, `importance`, `utility`,
    `names`, `asking`, `length`; a factor of 1 is left out.
    """
    expanded_from: Id | None = None
    """The hit beside which, or in whose session, this one was found."""
    collapsed: tuple[Id, ...] = ()
    """Near duplicates with lower scores that this hit stands for."""
    rerank: float | None = None
    trust: Trust | None = None
    """The least trusted turn behind an event; an item tells its own trust."""
    tokens: int | None = None
    """Estimated tokens of the text, when a token budget was set."""


class Hit(Record):
    """One item or event found, with its score.

    Higher is better; scores compare within one search only.
    """

    id: Id
    kind: NodeKind = NodeKind.ITEM
    score: float
    item: MemoryItem | None = None
    event: Event | None = None
    why: Relevance = Relevance()

    @property
    def text(self) -> str:
        """The text of the hit."""
        if self.item is not None:
            return self.item.text
        return self.event.summary if self.event is not None else ""

    @property
    def trust(self) -> Trust:
        """The trust in its words; `user` where nothing says otherwise."""
        return self.item.trust if self.item is not None else self.why.trust or Trust.USER

    @property
    def source_turn_ids(self) -> tuple[str, ...]:
        """Turns the hit rests on."""
        if self.item is not None:
            return self.item.source_turn_ids
        return self.event.source_turn_ids if self.event is not None else ()


class Strength(StrEnum):
    """The fit of what was found to what was asked."""

    STRONG = "strong"
    """It most likely answers."""
    WEAK = "weak"
    """It is the closest thing remembered."""
    NONE = "none"
    """It most likely has nothing to do with it."""


SUPPORTED_FROM = 0.7
"""Probability from which evidence is `strong`, and an answer of quotes `supported`."""
QUOTED_FROM = 0.27
"""Probability from which evidence is `weak`, and an answer of quotes `quoted`."""


class SearchEvidence(Record):
    """Whether the hits of a search answer it, as one signal for all of them."""

    strength: Strength = Strength.NONE
    probability: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The probability that one of the first hits answers, calibrated on questions."""

    @classmethod
    def of(cls, probability: float) -> SearchEvidence:
        """Return the evidence of a probability, with its strength."""
        weak = Strength.WEAK if probability >= QUOTED_FROM else Strength.NONE
        strength = Strength.STRONG if probability >= SUPPORTED_FROM else weak
        return cls(strength=strength, probability=probability)


class Verdict(StrEnum):
    """The relation of an answer to its evidence."""

    SUPPORTED = "supported"
    """What is cited answers this very question."""
    QUOTED = "quoted"
    """The closest thing said is quoted; it may not answer this very question."""
    UNSUPPORTED = "unsupported"
    """The model cited nothing that it was shown, or nothing that carries its answer."""
    ABSTAINED = "abstained"


class Citation(Record):
    """Evidence behind an answer: a hit that was shown, its turn and a verbatim quote."""

    hit_id: Id
    version: int | None = None
    turn_id: Text | None = None
    session_id: Text | None = None
    speaker: Text | None = None
    said_at: Moment | None = None
    quote: Text = ""
    by_hand: bool = False
    """Whether the quote was written or edited by hand, so that no turn says it."""


class Answer(Record):
    """An answer with its evidence. Abstaining is an answer, not an error."""

    text: Text
    citations: tuple[Citation, ...] = ()
    verdict: Verdict = Verdict.SUPPORTED
    probability: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """The calibrated probability that what is quoted answers the question; for a model's
    answer, that what it was shown does. None when nothing was judged.
    """
    when: TimeSpan | None = None
    """The time the answer names, for questions about time."""
    notes: tuple[Text, ...] = ()
    """What the reader should know: no model configured, citations dropped, contradictions
    and their dates.
    """
    hits: tuple[Hit, ...] = ()
    """What the answerer was shown, in the order shown."""
    evidence_sessions: tuple[Text, ...] = ()
    """Sessions the answerer named as its evidence, for designs that ask for them; only
    such as it was shown.
    """
    usage: Usage = Usage()
    response_ids: tuple[str, ...] = ()
    question: Question | None = None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        name, count = type(self).__name__, len(self.citations)
        return f"{name}({self.text!r}, verdict={self.verdict.value!r}, citations={count})"

    @property
    def abstained(self) -> bool:
        """Whether no answer was given."""
        return self.verdict is Verdict.ABSTAINED


class Reply(Answer):
    """The agent's words in a conversation, with what memory lent to them.

    The verdict tells about citations: a reply that rests on no memory is `unsupported`,
    which is no fault in a conversation.
    """

    thread: Id
    session_id: Id
    """The session of the thread's day."""
    turn_ids: tuple[Id, ...] = ()
    """Ids of the message's turn and of the reply's."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls of tools that the caller runs itself; the reply is not finished then."""
    approvals: tuple[ToolCall, ...] = ()
    """Calls of tools that act and wait for approval; the reply is not finished then. Send
    the same message again with `approve=True` or `approve=False`.
    """


class ReplyDelta(Record):
    """A piece of a streamed reply; the last one carries the whole `Reply`."""

    text: Text = ""
    reply: Reply | None = None


GraphFormat = Literal["html", "json", "graphml"]
"""The forms of a written graph: one page, node-link JSON, or GraphML."""


class NodeState(StrEnum):
    """The state of a node: whether it still tells what the memory holds."""

    OPEN = "open"
    CLOSED = "closed"
    """A tombstone: deleted, expired, or an old version of something rewritten."""
    OUTDATED = "outdated"
    """An event whose memory was deleted or rewritten since; the journal says nothing about
    it.
    """


class GraphNode(Record):
    """A memory item, an event, a person or thing, or a topic."""

    id: Id
    kind: NodeKind
    text: Text = ""
    """What is remembered, in full; an entity's name; a topic's most telling words."""
    state: NodeState = NodeState.OPEN
    people: tuple[Text, ...] = ()
    aliases: tuple[Text, ...] = ()
    """Other tellings of the same event."""
    valid: TimeSpan | None = None
    said_at: Moment | None = None
    time_text: Text | None = None
    session_id: Text | None = None
    order: int = 0
    source_turn_ids: tuple[Id, ...] = ()


class GraphEdge(Record):
    """A directed, typed edge; closed when an end is no longer open, or its own time is over."""

    source: Id
    target: Id
    relation: Relation
    label: Text = ""
    state: NodeState = NodeState.OPEN
    evidence_turn_ids: tuple[Id, ...] = ()
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    count: Annotated[int, Field(ge=1)] = 1
    valid: TimeSpan | None = None


class GraphTurn(Record):
    """A turn of dialogue as evidence."""

    id: Id
    speaker: Text
    text: Text
    """What was said, an image's caption included."""
    session_id: Text
    said_at: Moment | None = None


class GraphDocument(Record):
    """One memory's event graph at one journal sequence."""

    scope: Scope = Scope()
    digest: Text = ""
    seq: int = 0
    as_of: AsOf = AsOf()
    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[GraphEdge, ...] = ()
    turns: tuple[GraphTurn, ...] = ()

    def without_hidden(self) -> GraphDocument:
        """Return the document with open nodes and edges only, and the turns they rest on."""
        nodes = tuple(node for node in self.nodes if node.state is NodeState.OPEN)
        edges = tuple(edge for edge in self.edges if edge.state is NodeState.OPEN)
        named = {turn_id for node in nodes for turn_id in node.source_turn_ids}
        named.update(turn_id for edge in edges for turn_id in edge.evidence_turn_ids)
        turns = tuple(turn for turn in self.turns if turn.id in named)
        return self.model_copy(update={"nodes": nodes, "edges": edges, "turns": turns})
