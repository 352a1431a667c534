"""Spans of the agent's work, by OpenTelemetry's conventions for generative AI.

Without an SDK that the program has set up there are no spans.
"""

from __future__ import annotations

from memagent.tracing.spans import (
    METHODS,
    NO_SPAN,
    Attributes,
    Span,
    agent_span,
    answer_figures,
    caller_span,
    end_request,
    messages_content,
    operation_span,
    own_id,
    put_search,
    records_content,
    request_span,
    result_figures,
    search_figures,
    span,
    step,
    trace_context,
    trace_id,
    tracing,
    usage_figures,
    verb,
    within,
)

__all__ = [
    "METHODS",
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
