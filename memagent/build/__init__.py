"""The composition root: the only place that turns settings into objects.

A `Store` owns resources (the journal's database, its cache of vectors) and may serve
many users; `Store.agent` builds an agent for one of them.
"""

from memagent.build.parts import EMBEDDERS as EMBEDDERS
from memagent.build.parts import NoModel as NoModel
from memagent.build.parts import build_design as build_design
from memagent.build.parts import build_embedder as build_embedder
from memagent.build.parts import build_index as build_index
from memagent.build.parts import build_model as build_model
from memagent.build.parts import build_reranker as build_reranker
from memagent.build.parts import prompt_set_digest as prompt_set_digest
from memagent.build.store import Store as Store
from memagent.build.store import default_path as default_path
from memagent.build.store import is_server as is_server
from memagent.build.store import open_agent as open_agent
from memagent.build.store import open_postgres as open_postgres
from memagent.build.store import open_sqlite as open_sqlite
from memagent.build.store import open_store as open_store
from memagent.config import AgentSettings as AgentSettings
from memagent.config import load_settings as load_settings
