"""The tools of the MCP server, as coroutines over the memory of whoever calls them.

No tool takes a user, so a model cannot name another one. What a model adds has an
assistant's trust, and so has the task that it recalls for. Ids and cursors are looked up in that
user's memory alone: another user's id gets the answer of one that does not exist. The
docstrings of tools and records are part of the schemas that clients read.

`memory_functions` gives the same tools to frameworks that make tools of functions.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import AfterValidator, Field

from memagent.client.wire import TrialOutcome
from memagent.integrations.access import (
    MAX_TEXT_CHARS,
    Access,
    Add,
    Agent,
    AsyncAgent,
    ConfigError,
    Fact,
    Hit,
    InputError,
    MemoryItem,
    MemoryNotFound,
    Moment,
    OpBatch,
    Question,
    Record,
    SearchEvidence,
    SourceRef,
    Text,
    Trust,
    as_question,
    quoted,
)
from memagent.memory.care.undo import adds_items
from memagent.pages.journal_words import title_of
from memagent.tracing import operation_span, records_content, result_figures

ShortText = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
LeastTrust = Annotated[
    Trust | None, Field(description="Leave out what is trusted less, such as words of tools.")
]
MemoryId = Annotated[str, Field(min_length=1, max_length=256, description="Id of a memory.")]


def _shown(text: str) -> str:
    return "\n".join(map(quoted, text.splitlines()))


Shown = Annotated[Text, AfterValidator(_shown)]
"""Text out of a memory, for a model to read: as in a prompt, line by line; opens no tag."""


class Remembered(Record):
    """A memory as a client sees it."""

    id: Text
    text: Shown
    version: int
    kind: Text
    subject: Shown | None = None
    speaker: Shown | None = None
    said_at: Moment | None = None
    trust: Trust
    tags: tuple[Shown, ...] = ()
    """Words set beside it, such as `succeeded` on the case of a trial."""
    score: float | None = None
    """Of a search; higher is better, comparable within one search only."""


class SearchHits(Record, title="Found"):
    """The hits of a search, best first."""

    memories: tuple[Remembered, ...]
    evidence: SearchEvidence = SearchEvidence()
    """Whether the memories answer the query: strong, weak or none."""


class Title(Record):
    """A memory in the list of a hosted connector; `fetch` reads it by its id."""

    id: Text
    title: Shown
    url: Text
    """Names the memory in a citation; it leads nowhere outside of memagent."""


class Titles(Record):
    """The titles that a connector's search found, best first."""

    results: tuple[Title, ...]


class Fetched(Title):
    """A memory in full, with the words that it rests on."""

    text: Shown
    metadata: dict[str, Shown]


class Page(Record):
    """Memories, oldest first, and where the next ones begin."""

    memories: tuple[Remembered, ...]
    next_cursor: Text | None = None


class Answered(Record):
    """An answer with what it rests on; `verdict` is supported, quoted, unsupported or abstained."""

    text: Shown
    verdict: Text
    citations: tuple[dict[str, Shown | None], ...] = ()
    notes: tuple[Text, ...] = ()


class Change(Record):
    """One change of a memory."""

    commit_id: Text
    recorded_at: Moment
    change: Text
    text: Shown | None = None
    """What the memory said afterwards; None when it was taken out."""


class Changes(Record):
    """The history of a memory, oldest first."""

    changes: tuple[Change, ...]


class Done(Record):
    """The effect of a change."""

    commit_id: Text | None = None
    memories: tuple[Text, ...] = ()
    """Ids of the memories changed."""


class TrialBegun(Record):
    """A trial with what memory has for its task; report on it when the task is over."""

    trial_id: Text
    memories: tuple[Remembered, ...] = ()


class TrialReported(Record):
    """The memories that a report counted, and what a lesson changed."""

    counted: tuple[Text, ...] = ()
    lesson: Done | None = None


class MemoryTools:
    """The tools, as coroutines over the memory of whoever is asking.

    A function gives the agent of the present call. Without `deletes` no undo takes a
    memory away.
    """

    def __init__(self, agent_of_call: Callable[[], AsyncAgent], *, deletes: bool = True) -> None:
        self._agent, self._deletes = agent_of_call, deletes

    async def add(
        self, text: ShortText, subject: Annotated[str, Field(max_length=200)] | None = None
    ) -> Remembered:
        """Remember one self-contained statement; `subject` is who or what it is about."""
        if not text.strip():
            raise InputError("the text is empty; there is nothing to remember")
        agent = self._agent()
        fact = Fact(text=text, subject=subject, trust=Trust.ASSISTANT, said_at=agent.clock())
        with operation_span("create_memory", capture=agent.capture_content) as span:
            commit = await agent.bank.commit(
                OpBatch(accepted=(Add(fact=fact),)), source=SourceRef(actor="mcp")
            )
            item = commit.changes[0].after
            assert item is not None
            if span.recording:
                span.put({"memagent.verb": "add", **result_figures(item)})
                span.content(lambda: records_content([item]))
        return _remembered(item)

    async def search(
        self,
        query: ShortText,
        k: Annotated[int, Field(ge=1, le=100, description="How many.")] = 10,
        max_tokens: Annotated[
            int, Field(ge=1, description="Bound on the tokens of all texts together.")
        ]
        | None = None,
        abstain_below: Annotated[
            float, Field(ge=0.0, le=1.0, description="Give nothing below this probability.")
        ]
        | None = None,
        min_trust: LeastTrust = None,
    ) -> SearchHits:
        """The memories that fit a text best."""  # noqa: D401 (the description that clients read)
        hits = await self._agent().memory.search(
            query, k=k, max_tokens=max_tokens, abstain_below=abstain_below, min_trust=min_trust
        )
        return SearchHits(memories=_remembered_hits(hits), evidence=hits.evidence)

    async def find(self, query: ShortText) -> Titles:
        """The titles of the memories that fit a text best; `fetch` reads one of them in full."""  # noqa: D401 (the description that clients read)
        hits = await self._agent().memory.search(query)
        found = (hit.item for hit in hits if hit.item is not None)
        return Titles(results=tuple(Title(**_title(item)) for item in found))

    async def fetch(
        self, id: Annotated[str, Field(min_length=1, max_length=256, description="Of a result.")]
    ) -> Fetched:
        """One memory in full, with the words that it rests on."""
        bank = self._agent().bank
        item = await self._agent().memory.get(id)
        turns = (bank.turn_with_session(turn_id) for turn_id in item.source_turn_ids)
        said = [f"{pair[0].speaker}: {pair[0].said}" for pair in turns if pair is not None]
        known = {
            "kind": item.kind,
            "speaker": item.speaker,
            "trust": item.trust.value,
            "said_at": item.said_at.isoformat() if item.said_at is not None else None,
        }
        return Fetched(
            **_title(item),
            text="\n".join([item.text, *said]),
            metadata={name: value for name, value in known.items() if value is not None},
        )

    async def ask(self, question: ShortText, min_trust: LeastTrust = None) -> Answered:
        """Answer a question from memory, with citations; abstains when nothing fits."""
        request: Question = as_question(question, min_trust=min_trust)
        answer = await self._agent().ask(request)
        citations = tuple(
            {
                "memory_id": citation.hit_id,
                "quote": citation.quote,
                "speaker": citation.speaker,
                "said_at": citation.said_at.isoformat() if citation.said_at is not None else None,
            }
            for citation in answer.citations
        )
        return Answered(
            text=answer.text,
            verdict=answer.verdict.value,
            citations=citations,
            notes=answer.notes,
        )

    async def list_memories(
        self,
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
        cursor: Annotated[
            str, Field(max_length=2_000, description="`next_cursor` of the page before.")
        ]
        | None = None,
    ) -> Page:
        """All memories, oldest first, page by page."""
        # A page may end at an item that was deleted since.
        after = _read_cursor(cursor) if cursor is not None else None
        try:
            found = await self._agent().memory.get_all(limit=limit + 1, after=after)
        except MemoryNotFound as exc:
            raise InputError(
                "the cursor is not one of this memory; list from the beginning"
            ) from exc
        page = found[:limit]
        following = base64.urlsafe_b64encode(json.dumps(page[-1].id).encode()) if page else b""
        return Page(
            memories=tuple(_remembered(item) for item in page),
            next_cursor=following.decode() if len(found) > limit else None,
        )

    async def history(self, memory_id: MemoryId) -> Changes:
        """Every change of a memory, oldest first."""
        entries = await self._agent().memory.history(memory_id)
        return Changes(
            changes=tuple(
                Change(
                    commit_id=entry.commit_id,
                    recorded_at=entry.recorded_at,
                    change=entry.op.op
                    if entry.op is not None
                    else "UNDO"
                    if entry.undoes
                    else "RESTORE",
                    text=entry.item.text if entry.item is not None and entry.item.active else None,
                )
                for entry in entries
            )
        )

    async def forget(self, memory_id: MemoryId) -> Done:
        """Delete a memory; `undo` brings it back."""
        memory = self._agent().memory
        await memory.get(memory_id)
        await memory.delete(memory_id)
        return Done(memories=(memory_id,))

    async def erase(
        self,
        memory_id: MemoryId,
        confirm: Annotated[str, Field(max_length=256, description="The id once more.")],
    ) -> Done:
        """Erase a memory and the words it rests on, beyond recovery; `forget` can be undone."""
        if confirm != memory_id:
            raise InputError("nothing was erased: `confirm` has to repeat the id")
        await self._agent().memory.erase(memory_id)
        return Done(memories=(memory_id,))

    async def undo(
        self, commit_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    ) -> Done:
        """Take back a change, by default the last one."""
        if not self._deletes and await adds_items(self._agent().bank, commit_id):
            raise InputError("this undo would take memories away; deleting is not allowed here")
        commit = await self._agent().memory.undo(commit_id)
        return Done(commit_id=commit.id, memories=tuple(change.id for change in commit.changes))

    async def recall(
        self,
        task: ShortText,
        k: Annotated[int, Field(ge=1, le=100, description="How many.")] = 10,
    ) -> TrialBegun:
        """Recall memories for a task and start a trial; call `report` when the task is over."""
        recalled = await self._agent().recall(task, k=k, trust=Trust.ASSISTANT)
        return TrialBegun(trial_id=recalled.id, memories=_remembered_hits(recalled.hits))

    async def report(
        self,
        trial_id: Annotated[
            str, Field(min_length=1, max_length=256, description="`trial_id` of `recall`.")
        ],
        outcome: TrialOutcome,
    ) -> TrialReported:
        """Report what came of a trial: a reward of 1 for done, of 0 or below for failed.

        `credit` names the reward of single memories, `edits` what left the workspace.
        """
        learned = await self._agent().report(trial_id, outcome.reward, **outcome.arguments())
        lesson = learned.lesson
        return TrialReported(
            counted=tuple(share.id for share in learned.trial.credit),
            lesson=None
            if lesson is None
            else Done(commit_id=lesson.id, memories=tuple(change.id for change in lesson.changes)),
        )


def _title(item: MemoryItem) -> dict[str, str]:
    url = f"memagent://memories/{quote(item.id, safe='')}"
    return {"id": item.id, "title": title_of(item.text), "url": url}


def _remembered(item: MemoryItem, *, score: float | None = None) -> Remembered:
    fields = {name: getattr(item, name) for name in Remembered.model_fields if name != "score"}
    return Remembered(**fields, score=score)


def _remembered_hits(hits: Sequence[Hit]) -> tuple[Remembered, ...]:
    return tuple(_remembered(hit.item, score=hit.score) for hit in hits if hit.item is not None)


def _read_cursor(cursor: str) -> str:
    try:
        item_id: object = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except ValueError:
        item_id = None
    return item_id if isinstance(item_id, str) else ""


Tool = Callable[..., Coroutine[Any, Any, Any]]
TOOLS: Final = ("search", "add", "ask", "history", "forget", "undo", "recall", "report")
"""Every tool, by name; those chosen by default come first."""


def memory_functions(
    agent: Agent | AsyncAgent, tools: Sequence[str] = ("search", "add")
) -> list[Tool]:
    """Return tools as coroutine functions with hints and docstrings.

    Over an `Agent` they run in any event loop, over an `AsyncAgent` in its own. Raises
    `ConfigError` for an unknown name.
    """
    unknown = sorted(set(tools) - set(TOOLS))
    if unknown:
        raise ConfigError(f"there is no tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    access = Access(agent)
    return [_function(access, name) for name in tools]


def _function(access: Access, name: str) -> Tool:
    verb = getattr(MemoryTools, name)

    @wraps(verb)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await access.arun(
            lambda live: getattr(MemoryTools(lambda: live), name)(*args, **kwargs)
        )

    signature = inspect.signature(verb, eval_str=True)
    hints = [part for key, part in signature.parameters.items() if key != "self"]
    call.__signature__ = signature.replace(parameters=hints)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {
        **{part.name: part.annotation for part in hints},
        "return": signature.return_annotation,
    }
    return call
