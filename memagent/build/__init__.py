"""Stores with agents, made from settings.

A `Store` owns resources (the journal's database, its cache of vectors) and may serve
many users; `Store.agent` builds an agent for one of them. `memagent.opening` makes the
parts and knows no agents; its builders are offered here too.
"""

from memagent.build.store import Store, open_agent, open_store
from memagent.config import AgentSettings, SqliteSettings, load_settings
from memagent.opening.open_store import (
    EMBEDDERS,
    NoModel,
    build_design,
    build_embedder,
    build_index,
    build_model,
    build_reranker,
    default_path,
    embedder_settings,
    is_server,
    open_postgres,
    open_sqlite,
    prompt_set_digest,
)

__all__ = [
    "EMBEDDERS",
    "AgentSettings",
    "NoModel",
    "SqliteSettings",
    "Store",
    "build_design",
    "build_embedder",
    "build_index",
    "build_model",
    "build_reranker",
    "default_path",
    "embedder_settings",
    "is_server",
    "load_settings",
    "open_agent",
    "open_postgres",
    "open_sqlite",
    "open_store",
    "prompt_set_digest",
]
