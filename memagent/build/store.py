"""An open store with the agents of its users."""

from __future__ import annotations

from typing import Final, Unpack

from memagent.async_agent import AgentOptions, AsyncAgent
from memagent.core.records import Scope
from memagent.opening.open_store import OpenStore
from memagent.protocols import ChatModel


class Store(OpenStore):
    """An open store that makes the agents of its users. Close it when done."""

    def agent(
        self,
        scope: Scope,
        *,
        model: ChatModel | str | None = None,
        keep_unreadable: bool = False,
        **options: Unpack[AgentOptions],
    ) -> AsyncAgent:
        """Build the agent of one scope; its keywords win over the settings.

        Rollouts set `keep_unreadable`: there an unreadable reply is data.
        """
        given: AgentOptions = {"settings": self.settings, **options}
        return AsyncAgent(
            model,
            bank=self.bank(scope),
            clock=self.clock,
            keep_unreadable=keep_unreadable,
            **given,
        )


open_store: Final = Store.open
"""Opens a store that makes agents."""
open_agent: Final = AsyncAgent
"""An agent for one user, as a context manager that closes its store."""
