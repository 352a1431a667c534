"""A real tracer provider for one test, and the spans that came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode


class Traced:
    """Finished spans, asked for by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str, wait_s: float = 5.0) -> ReadableSpan:
        """Return the only span of this name; a server may end it just after its client has the answer."""
        until = time.monotonic() + wait_s
        while not (found := self.named(name)) and time.monotonic() < until:
            time.sleep(0.01)
        assert len(found) == 1, (name, [span.name for span in self.spans])
        return found[0]

    def tree(self, root: ReadableSpan | None = None) -> list[Any]:
        """Names as nested lists, [name, child, child, ...], in the order the spans began."""
        parent = root.context.span_id if root is not None and root.context is not None else None
        children = [
            span for span in self.spans if (span.parent.span_id if span.parent else None) == parent
        ]
        children.sort(key=lambda span: span.start_time or 0)
        below = [self.tree(child) for child in children]
        return below if root is None else [root.name, *below]

    @property
    def json(self) -> str:
        """Everything an exporter would send."""
        return "\n".join(span.to_json() for span in self.spans)


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def failed(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


@contextmanager
def traced() -> Iterator[Traced]:
    """Tracing as a program sets it up, taken back afterwards: the API itself lets a
    provider be set only once a process.
    """
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        try:
            yield Traced(exporter)
        finally:
            provider.shutdown()
