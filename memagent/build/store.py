"""An open store with the agents of its users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from memagent.async_agent import AsyncAgent
from memagent.core.records import Scope
from memagent.designs.base import MemoryDesign
from memagent.open_store import OpenStore
from memagent.protocols import ChatModel

if TYPE_CHECKING:
    from memagent.graphs.state import Tool


class Store(OpenStore):
    """An open store that makes the agents of its users. Close it when done."""

    def agent(  # noqa: PLR0913 (the options of an agent)
        self,
        scope: Scope,
        *,
        model: ChatModel | str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        design: MemoryDesign | str | None = None,
        tools: Sequence[Tool] = (),
        keep_unreadable: bool = False,
    ) -> AsyncAgent:
        """Build the agent of one scope; arguments win over the settings.

        Rollouts set `keep_unreadable`: there an unreadable reply is data.
        """
        return AsyncAgent(
            model,
            bank=self.bank(scope),
            base_url=base_url,
            api_key=api_key,
            design=design,
            tools=tools,
            settings=self.settings,
            clock=self.clock,
            keep_unreadable=keep_unreadable,
        )


open_store: Final = Store.open
"""Opens a store that makes agents."""
open_agent: Final = AsyncAgent
"""An agent for one user, as a context manager that closes its store."""
