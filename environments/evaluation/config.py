"""The configuration of an evaluation, and the models and embedders that it names.

Keys and addresses of models are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from environments.errors import EnvironmentFault
from environments.evaluation.arms import IDEAL, OwnModel, design_of
from environments.evaluation.judge import JudgeConfig
from environments.evaluation.known_worlds import Answering, Worlds
from environments.play.rollout import DEFAULT_K
from memagent.build import AgentSettings, build_design, build_embedder, build_model
from memagent.core.records import Record, Text
from memagent.plugins import available
from memagent.protocols import ChatModel, Embedder

FROM_SETTINGS = "settings"
"""Name of the embedder that the agent's settings describe."""


class EvalConfig(Record):
    """Everything that the figures of an evaluation depend on."""

    benchmark: Literal["locomo", "longmemeval", "synthetic"]
    data_digest: Text
    """SHA-256 of the data files, or of the generated episodes."""
    worlds: Worlds | None = None
    """The generated worlds; None for data of files."""
    arms: Annotated[tuple[Text, ...], Field(min_length=1)]
    own_models: dict[Text, OwnModel] = Field(default_factory=dict[str, OwnModel])
    """Designs and models of the arms that bring their own, by name."""
    answering: Answering = "agent"
    """The answerer of questions about generated worlds: each arm's own `agent`, or for arms
    that hold notes the `reader`, a rule that knows the world's language.
    """
    embedder: Text = "static"
    """Name of the embedder; `settings` for the one that the agent's settings describe."""
    embedder_id: Text = ""
    """The embedder's id: model, width and digest of the weights."""
    second_embedder: Text | None = None
    """Name of the embedder that `five_way` adds; None leaves the arm out."""
    model: Text | None = None
    """litellm's name of the model of all roles; None answers by rules."""
    weights: dict[Text, Text] = Field(default_factory=dict[str, str])
    """SHA-256 of the files of every model that is loaded from a folder, by the model's
    name.
    """
    settings_digest: Text | None = None
    """SHA-256 of the agent's settings without keys; None where there are none."""
    prompts: dict[Text, dict[Text, Text]] = Field(default_factory=dict[str, dict[str, str]])
    """SHA-256 of every prompt by design and name."""
    judge: JudgeConfig | None = None
    """The judge of the answers; None for none."""
    k: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT_K
    """Hits shown to the answerer."""
    ks: tuple[int, ...] = (5, 10, 30)
    """Numbers of turns at which evidence recall is taken."""
    categories: tuple[Text, ...] = ()
    """Categories asked; empty for all."""
    limit: int | None = None
    """Episodes played, the first ones; None for all."""
    context_tokens: Annotated[int, Field(ge=1)] = 32_000
    """Budget of the arm `full_context`, in words and punctuation marks."""
    cover_share: float = 0.5
    """Share of a gold turn's content words that an item must hold to count as covering it."""
    bootstrap_samples: int = 1_000
    seed: int = 0
    """Seed of the bootstrap."""
    memagent: Text = Field(default_factory=lambda: version("memagent"))
    """Version of memagent that made the figures."""


def settings_digest(settings: AgentSettings) -> str:
    """Return the SHA-256 over settings as JSON with sorted keys.

    Left out are stores and indexes, which an evaluation does not use, and API keys, which
    are secret and change no figure.
    """
    plain = settings.model_dump(mode="json", exclude={"store", "index"})
    for model in (plain["model"], *plain["roles"].values()):
        if model is not None:
            del model["api_key"]
    return hashlib.sha256(
        json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def prompts_of(
    arms: Iterable[str], *, model: bool, own: Mapping[str, OwnModel] | None = None
) -> dict[str, dict[str, str]]:
    """Return the digests of the prompts of every design in the arms.

    Raises `ConfigError` for an unknown design, and for one that needs a model where its
    arm has none.
    """
    # Arms that have a model whether or not there is a common one.
    asking = {*(own or ()), IDEAL}
    # A design may stand here twice. The one with a model comes last, and its prompts stay.
    designs = {(design_of(arm, model=model, own=own), model or arm in asking) for arm in arms}
    prompts = {
        name: build_design(name, has_model=has_model).prompt_digests
        for name, has_model in sorted(designs)
    }
    return {name: digests for name, digests in prompts.items() if digests}


def weights_of(models: Iterable[str]) -> dict[str, str]:
    """Return the digests of the models that are folders here (`hf:FOLDER`).

    A digest is the SHA-256 over the files' names and contents, 64 hex digits.

    Names of hubs and providers have none. Raises `EnvironmentFault` for a missing
    folder.
    """
    digests: dict[str, str] = {}
    for model in models:
        kind, _, place = model.partition(":")
        folder = Path(place)
        if kind != "hf" or not place:
            continue
        if folder.is_dir():
            digests[model] = _folder_digest(folder)
        # OWNER/NAME is a name on a hub, unless OWNER is a folder here.
        elif place[0] in "./~" or place.count("/") > 1 or ("/" in place and folder.parent.is_dir()):
            raise EnvironmentFault(f"model {model!r}: there is no folder {place}")
    return digests


def _folder_digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            part = hashlib.file_digest(stream, "sha256").digest()
        whole.update(file.relative_to(folder).as_posix().encode() + b"\x00" + part)
    return whole.hexdigest()


def model_of(config: EvalConfig, arm: str, settings: AgentSettings | None) -> ChatModel | None:
    """Return the model of an arm; None for an arm that answers by rules.

    An arm's own model plays all roles. The common model plays those for which the settings
    name no other. A model of a plug-in is built once a process. Raises `ConfigError`.
    """
    own = config.own_models.get(arm)
    name = own.model if own is not None else config.model
    if name is None:
        return None
    if own is not None and settings is not None:
        settings = settings.model_copy(update={"roles": {}})
    configured = settings is not None and (settings.model is not None or bool(settings.roles))
    if not configured and name.partition(":")[0] in available("models"):
        return _plugin_model(name, config.weights.get(name))
    return build_model(name, settings or AgentSettings())


@cache
def _plugin_model(name: str, _weights: str | None) -> ChatModel | None:
    """Build a model of a plug-in, once a process, since its weights may take long to load.

    `_weights` is their digest: models of one name and other weights are built again.
    """
    return build_model(name, AgentSettings())


def embedder_named(name: str, settings: AgentSettings | None = None) -> Embedder:
    """Return the embedder of a name, built once a process.

    The name `settings` stands for the one that the settings describe. Raises `ConfigError`
    as `build_embedder` does.
    """
    chosen = (
        (settings or AgentSettings()).embedder.model_dump_json() if name == FROM_SETTINGS else None
    )
    return _build_embedder(name, chosen)


@cache
def _build_embedder(name: str, settings_json: str | None) -> Embedder:
    if settings_json is None:
        return build_embedder(name)
    return build_embedder(
        AgentSettings.model_validate({"embedder": json.loads(settings_json)}).embedder
    )
