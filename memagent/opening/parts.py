"""Models, embedders, rerankers, designs and indexes, from objects, names or settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from memagent.config import (
    AgentSettings,
    EmbedderSettings,
    HashingEmbedderSettings,
    LiteLLMEmbedderSettings,
    MiniLMEmbedderSettings,
    ModelSettings,
    PluginSettings,
    QdrantSettings,
    RerankerSettings,
    Settings,
    StaticEmbedderSettings,
)
from memagent.core import Later
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope
from memagent.designs.base import MemoryDesign
from memagent.protocols import ChatModel, Embedder, Reranker, VectorIndex

if TYPE_CHECKING:
    from memagent import plugins
else:
    plugins = Later("memagent.plugins")

T = TypeVar("T")
EMBEDDERS: dict[str, EmbedderSettings] = {
    "static": StaticEmbedderSettings(),
    "hashing": HashingEmbedderSettings(),
    "minilm": MiniLMEmbedderSettings(),
}
"""Embedders that need no settings, by name."""


class NoModel:
    """A stand-in for a language model that is not configured; every call is refused."""

    absent = True

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Raise `ConfigError`."""
        raise ConfigError(
            f"the role {request.role.value!r} needs a language model and none is configured; "
            "pass Agent(model='openai/gpt-4o-mini') or "
            'another litellm name, and run  pip install "memagent[llm]"'
        )


def build_embedder(choice: Embedder | str | EmbedderSettings) -> Embedder:
    """Build an embedder from an object, settings, or a name.

    Names are `static`, `minilm`, `hashing`, those of plug-ins, and litellm's, such as
    `openai/text-embedding-3-small`.
    """
    if isinstance(choice, str):
        choice = embedder_settings(choice)
    if not isinstance(choice, Settings):
        return _checked_embedder(choice, type(choice).__name__)
    if isinstance(choice, LiteLLMEmbedderSettings):
        from memagent.embed.local_models import LiteLLMEmbedder

        return LiteLLMEmbedder(**choice.model_dump(exclude={"type"}))
    name, options = _plugin(choice)
    built = cast("Callable[..., object]", plugins.load("embedders", name))(**options)
    return _checked_embedder(built, f"what embedder plug-in {name!r} gave")


def embedder_settings(name: str) -> EmbedderSettings:
    """Return the settings that the name of an embedder stands for."""
    if "/" in name and ":" not in name.partition("/")[0]:
        return LiteLLMEmbedderSettings(model=name)
    return EMBEDDERS.get(name) or PluginSettings(name=name)


# What an embedder has, with a hint.
_EMBEDDER_PARTS: Final = {
    "id": "`id`, a stable name of the model that is part of every cache key, e.g. id = 'e5-small'",
    "dim": "`dim`, the number of dimensions of its vectors, e.g. dim = 384",
    "embed": "`async def embed(self, texts)`, which returns one unit vector for each text",
}


def _checked_embedder(value: object, what: str) -> Embedder:
    """Return an embedder. Raises `ConfigError` that names what it lacks."""
    # Statically first: the width of a hosted model is a question to its server.
    missing = [
        part
        for part in _EMBEDDER_PARTS
        if getattr_static(value, part, None) is None and not hasattr(value, part)
    ]
    if not missing:
        return cast("Embedder", value)
    if len(missing) == len(_EMBEDDER_PARTS):
        raise ConfigError(f"{what} is no embedder; an embedder has id, dim and embed()")
    add = "; ".join(_EMBEDDER_PARTS[part] for part in missing)
    raise ConfigError(f"{what} has no {' and no '.join(missing)}: add {add}")


def build_reranker(choice: Reranker | RerankerSettings) -> Reranker:
    """Build a reranker from an object or from settings. Raises `ConfigError` for neither."""
    if isinstance(choice, Reranker):
        return choice
    name, options = _plugin(choice)
    built = cast("Callable[..., object]", plugins.load("rerankers", name))(**options)
    what = f"what reranker plug-in {name!r} gave"
    return _checked(built, Reranker, what, "a reranker has id and score()")


def _plugin(settings: EmbedderSettings | RerankerSettings) -> tuple[str, dict[str, Any]]:
    """Return the plug-in that settings name, and its keywords."""
    if isinstance(settings, PluginSettings):
        return settings.name, settings.options
    return settings.type, settings.model_dump(exclude={"type"})


def _checked(value: object, protocol: type[T], what: str, rule: str) -> T:
    if not isinstance(value, protocol):
        raise ConfigError(f"{what} is a {type(value).__name__}; {rule}")
    return value


def build_model(
    choice: ChatModel | str | None,
    settings: AgentSettings,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
) -> ChatModel | None:
    """Build the chat model of an agent, with retries, budget and a model for each role.

    `base_url` and `api_key` win over the settings. Returns None when nothing is
    configured. Raises `ConfigError` for a `base_url` or `api_key` without a name, and for
    an object that is no model.
    """
    given = {"base_url": base_url, "api_key": api_key}
    given = {name: value for name, value in given.items() if value is not None}
    if choice is not None and not isinstance(choice, str):
        if given:
            raise ConfigError(
                "base_url and api_key belong to a model given by name, such as "
                "model='openai/my-model'; this model is an object and has its own"
            )
        rule = "give a name such as 'openai/gpt-4o-mini', or an object with complete(request)"
        return _checked(choice, ChatModel, "the model", rule)
    base = settings.model
    if choice is not None:
        base = ModelSettings(model=choice) if base is None else base
        base = base.model_copy(update={"model": choice})
    if base is not None:
        base = base.model_copy(update=given)
    elif given:
        raise ConfigError("base_url and api_key need a model: add model='openai/<its name>'")
    if base is None:
        if settings.roles:
            raise ConfigError(
                "settings name models for roles but no `model` for the others; set model.model"
            )
        return None
    model = _configured(base)
    if not settings.roles:
        return model
    from memagent.llm.wrappers import RoutedModel

    routes = {role: _configured(own) for role, own in settings.roles.items()}
    return RoutedModel(routes, default=model)


def _plugged_in(choice: str) -> ChatModel | None:
    """Build the model of a plug-in from "name:rest", such as `hf:runs/first/best`.

    Returns None when no plug-in has that name. Raises `ConfigError` for the path of a memory.
    """
    if choice.startswith(":") or choice.endswith((".db", ".sqlite", ".sqlite3")):
        raise ConfigError(
            f"{choice!r} is the path of a memory, not the name of a model: pass path={choice!r}"
        )
    name, colon, rest = choice.partition(":")
    if not colon or not rest or name == "litellm" or name not in plugins.available("models"):
        return None
    model: object = cast("Any", plugins.load("models", name))(rest)
    if not isinstance(model, ChatModel):
        raise ConfigError(
            f"model plug-in {name!r} made {type(model).__name__}, which has no complete(request)"
        )
    return model


def _configured(settings: ModelSettings) -> ChatModel:
    from memagent.llm.wrappers import BudgetedModel, RetryingModel

    model = _plugged_in(settings.model)
    if model is None:
        from memagent.llm.litellm_model import LiteLLMModel

        names = {"base_url", "api_key", "timeout_s", "extra"}
        model = LiteLLMModel(settings.model, **settings.model_dump(include=names))
    budget = settings.model_dump(include={"max_calls", "max_tokens", "max_usd"})
    if any(limit is not None for limit in budget.values()):
        model = BudgetedModel(model, **budget)
    retrying = RetryingModel(model, attempts=settings.attempts)
    if not settings.redact:
        return retrying
    from memagent.llm.wrappers import RedactingModel

    return RedactingModel(retrying)


def build_design(choice: MemoryDesign | str, *, has_model: bool) -> MemoryDesign:
    """Build a design from an object or a name; `auto` goes by whether there is a model."""
    if choice == "auto":
        choice = "memory_r2" if has_model else "learned"
    design = plugins.load("designs", choice) if isinstance(choice, str) else choice
    if not isinstance(design, MemoryDesign):
        raise ConfigError(f"design {choice!r} is a {type(design).__name__}, not a MemoryDesign")
    if design.needs_model and not has_model:
        raise ConfigError(
            f"design {design.name!r} needs a language model and none is configured; "
            "pass model='provider/name', or use design='verbatim'"
        )
    return design


def prompt_set_digest(design: MemoryDesign | str) -> str:
    """Return one digest (64 hex digits) over all prompts that a design uses.

    It changes with any word of any prompt; a design without prompts has the digest of
    the empty set. Raises `UnknownPlugin` for an unknown name.
    """
    digests = build_design(design, has_model=True).prompt_digests
    lines = (f"{name} {digest}\n" for name, digest in digests.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def build_index(settings: QdrantSettings) -> Callable[[Scope], VectorIndex]:
    """Return a function that makes the networked index of a scope."""
    factory = cast("Any", plugins.load("indexes", settings.type))

    def make(scope: Scope) -> VectorIndex:
        return cast(
            "VectorIndex",
            factory.connect(
                settings.url, api_key=settings.api_key, collection=settings.collection, scope=scope
            ),
        )

    return make
