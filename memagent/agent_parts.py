"""The parts that an agent is made of, as one frozen value, and how they are opened.

An agent over a `bank` owns nothing; without one it opens the memory at `path` and
closes it. `with_model` and `at` give copies that share what they can and own nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack
from uuid import uuid4

from pydantic import ValidationError

from memagent.config import AgentSettings
from memagent.core.errors import ConfigError, InputError, fault_in
from memagent.core.exchange import Role, Sampling
from memagent.core.recipes import BALANCED, Recipe
from memagent.core.records import Scope
from memagent.core.snapshot import MemorySnapshot
from memagent.designs.base import MemoryDesign
from memagent.memory.bank import MemoryBank, system_clock
from memagent.open_store import OpenStore
from memagent.parts import NoModel, build_design, build_model
from memagent.protocols import ChatModel, Clock, Embedder

if TYPE_CHECKING:
    from memagent.events.graph_files import FrozenEventGraph
    from memagent.graphs.state import Tool
    from memagent.memory import facade


class AgentOptions(TypedDict, total=False):
    """The keywords of an agent; None, where allowed, leaves a choice to the settings."""

    design: MemoryDesign | str | None
    embedder: Embedder | str | None
    tools: Sequence[Tool]
    base_url: str | None
    """The address of the model's server."""
    api_key: str | None
    """Its key; without one litellm reads the provider's own environment variable."""
    read_only: bool
    settings: AgentSettings | None
    checkpointer: Any
    """One of LangGraph's; it keeps runs of `chat` that are cut off."""
    thread: str | None
    """The conversation of messages that name none; a new one for each agent unless given."""


@dataclass(frozen=True, init=False)
class AgentParts:
    """A design, a model, a memory bank and tools, and the store behind the bank if it is own."""

    design: MemoryDesign
    model: ChatModel
    bank: MemoryBank
    clock: Clock
    tools: tuple[Tool, ...]
    sampling: Mapping[Role, Sampling]
    tracing: bool
    """Whether LangSmith may trace the graphs."""
    capture_content: bool
    """Whether OpenTelemetry spans may tell texts: queries, memories, prompts, answers."""
    recipe: Recipe | None
    """The recipe of questions and searches that name none.

    None leaves it to the design, and to `balanced` for `search`.
    """
    keep_unreadable: bool
    """Whether an unreadable reply counts as one without facts or ops, not as a failure.

    For rollouts, where what a model writes is data.
    """
    checkpointer: Any
    """A LangGraph checkpointer for conversations, if any."""
    thread: str
    """The conversation of messages that name no thread."""
    store: OpenStore | None = field(init=False, repr=False, compare=False)
    """The store that this agent opened and closes."""

    def __init__(  # noqa: PLR0913 (the front door names its options)
        self,
        model: ChatModel | str | None = None,
        user_id: str = "default",
        path: str | Path | None = None,
        *,
        bank: MemoryBank | None = None,
        clock: Clock = system_clock,
        sampling: Mapping[Role, Sampling] | None = None,
        tracing: bool | None = None,
        capture_content: bool | None = None,
        recipe: Recipe | None = None,
        keep_unreadable: bool = False,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Open the memory of a user at `path`, or take one that is open as `bank`.

        Further keywords are those of `AgentOptions`; what is None comes from the
        settings. Raises `ConfigError`, `InputError`, `StoreLocked`, `StoreError`.
        """
        check_options(options)
        settings, embedder = options.get("settings"), options.get("embedder")
        defaults = settings or _default_settings()
        chat = build_model(
            model, defaults, base_url=options.get("base_url"), api_key=options.get("api_key")
        )
        chosen = build_design(options.get("design") or defaults.design, has_model=chat is not None)
        store: OpenStore | None = None
        if bank is None:
            scope = scope_of(user_id)
            store = OpenStore.open(
                settings,
                path=path,
                embedder=embedder,
                read_only=options.get("read_only", False),
                clock=clock,
            )
            bank = store.bank(scope)
        elif path is not None or embedder is not None:
            raise ConfigError("a `bank` has its own path and embedder; give one or the other")
        capture = defaults.capture_content if capture_content is None else capture_content
        values = {
            "design": chosen,
            "model": chat or NoModel(),
            "bank": bank,
            "clock": clock,
            "tools": tuple(options.get("tools", ())),
            "sampling": defaults.sampling if sampling is None else sampling,
            "tracing": defaults.tracing if tracing is None else tracing,
            "capture_content": capture,
            "recipe": recipe or defaults.recipe,
            "keep_unreadable": keep_unreadable,
            "checkpointer": options.get("checkpointer"),
            "thread": options.get("thread") or new_thread(),
            "store": store,
        }
        vars(self).update(values)

    async def aclose(self) -> None:
        """Release the memory that this agent opened; harmless when repeated."""
        if self.store is not None:
            self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def memory(self) -> facade.Memory:
        """Direct verbs on the memory."""
        from memagent.memory.facade import Memory

        return Memory(
            self.bank, recipe=self.recipe or BALANCED, capture_content=self.capture_content
        )

    @property
    def embedder(self) -> Embedder:
        """The bank's embedder."""
        return self.bank.embedder

    @property
    def event_graph(self) -> FrozenEventGraph:
        """The event graph, as last read or written, as a frozen networkx graph; O(1)."""
        from memagent.events.graph_files import as_networkx

        return as_networkx(self.bank.state.graph)

    def with_model(self, model: ChatModel) -> Self:
        """Return the same agent with another model."""
        return replace(self, model=model)

    def at(self, snapshot: MemorySnapshot) -> Self:
        """Return the same agent on a private memory that starts from a snapshot."""
        return replace(self, bank=self.bank.at(snapshot))

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as last read or written; O(1)."""
        return self.bank.snapshot()


_OPTIONS = ("model", "user_id", "path", *AgentOptions.__annotations__)
_MEANT = {"user": "user_id", "db": "path", "file": "path", "llm": "model", "api_base": "base_url"}
"""Keywords that people try, with the one they mean."""


def check_options(options: AgentOptions) -> None:
    """Raise `TypeError` for a keyword that no agent has."""
    unknown = options.keys() - set(_OPTIONS)
    if unknown:
        word = min(unknown)
        meant = _MEANT.get(word) or next(iter(get_close_matches(word, _OPTIONS, n=1)), None)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise TypeError(f"an agent got an unexpected keyword argument {word!r}{hint}")


@cache
def _default_settings() -> AgentSettings:
    return AgentSettings()


def new_thread() -> str:
    """Return the id of a conversation that belongs to one agent of this process."""
    return f"chat-{uuid4().hex[:12]}"


def scope_of(user_id: str) -> Scope:
    """Return the scope of a user. Raises `InputError` for a text that is no user id."""
    try:
        return Scope(user_id=user_id)
    except ValidationError as exc:
        raise InputError(f"{str(user_id)[:40]!r} cannot be a user id: {fault_in(exc)}") from exc
