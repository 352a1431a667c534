"""Spans of the agent's work, by OpenTelemetry's conventions for generative AI.

`spans` makes them, `attributes` names the numbers and texts they carry. Without an SDK
that the program has set up there are no spans.
"""

from __future__ import annotations

from memagent.tracing.attributes import (
    Attributes,
    answer_figures,
    messages_content,
    own_id,
    records_content,
    result_figures,
    search_figures,
    usage_figures,
)
from memagent.tracing.spans import (
    NO_SPAN,
    Span,
    agent_span,
    caller_span,
    end_request,
    operation_span,
    put_search,
    request_span,
    span,
    step,
    trace_context,
    trace_id,
    tracing,
    verb,
    within,
)

__all__ = [
    "NO_SPAN",
    "Attributes",
    "Span",
    "agent_span",
    "answer_figures",
    "caller_span",
    "end_request",
    "messages_content",
    "operation_span",
    "own_id",
    "put_search",
    "records_content",
    "request_span",
    "result_figures",
    "search_figures",
    "span",
    "step",
    "trace_context",
    "trace_id",
    "tracing",
    "usage_figures",
    "verb",
    "within",
]
