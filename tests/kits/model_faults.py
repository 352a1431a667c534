"""What a model may do wrong: errors of every kind, and replies that are of no use."""

from __future__ import annotations

from memagent.core.errors import (
    BudgetExceeded,
    ContextOverflow,
    ModelAuthError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
    QuotaExhausted,
    ReplyUnreadable,
    ReplyWithheld,
    RequestRefused,
)
from memagent.core.exchange import ModelResponse, ToolCall

ERRORS: tuple[type[Exception], ...] = (
    *(ModelTimeout, ModelRateLimited, QuotaExhausted, ModelUnavailable, ModelUnreachable),
    *(ContextOverflow, ModelAuthError, ModelNotFound, RequestRefused, ReplyWithheld),
    *(ReplyUnreadable, BudgetExceeded, RuntimeError, OSError, ValueError),
)
REPLIES: tuple[str | ModelResponse, ...] = (
    *("", " \n", "Sure, I can help!", "null", '{"facts": [{"te', '{"facts": 7, "ops": "no"}'),
    *("<think>hm", "<html>502 Bad Gateway</html>", "{" * 5_000, "\x00\ud83d" + "a" * 100_000),
    ModelResponse(id="r", tool_calls=(ToolCall(id="c", name="no_such_tool"),)),
)
FAULTS: tuple[type[Exception] | str | ModelResponse, ...] = (*ERRORS, *REPLIES)
"""Twenty-six kinds."""
