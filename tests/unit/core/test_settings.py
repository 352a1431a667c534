"""Settings from a file and from variables: what wins, what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent import Agent
from memagent.build import NoModel, build_design, build_embedder, build_model, open_store
from memagent.config import (
    AgentSettings,
    HashingEmbedderSettings,
    ModelSettings,
    StaticEmbedderSettings,
    load_settings,
)
from memagent.core.errors import ConfigError, UnknownPlugin
from memagent.core.exchange import Role
from memagent.core.records import Scope
from memagent.testing import FunctionModel


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "memagent.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_nothing() -> None:
    assert load_settings() == AgentSettings()


def test_variables_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings_file(
        tmp_path,
        '[model]\nmodel = "openai/a"\ntimeout_s = 5\n[store]\ntype = "sqlite"\npath = "x.db"\n',
    )
    monkeypatch.setenv("MEMAGENT_MODEL__MODEL", "openai/b")
    monkeypatch.setenv("MEMAGENT_STORE__PATH", str(tmp_path / "y.db"))
    loaded = load_settings(path)
    assert loaded.model is not None
    assert (loaded.model.model, loaded.model.timeout_s) == ("openai/b", 5.0)
    assert loaded.store.model_dump()["path"] == tmp_path / "y.db"


def test_a_kind_chosen_by_a_variable_replaces_the_files_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings_file(tmp_path, '[embedder]\ntype = "hashing"\ndim = 64\n')
    assert load_settings(path).embedder == HashingEmbedderSettings(dim=64)
    monkeypatch.setenv("MEMAGENT_EMBEDDER__TYPE", "static")
    assert load_settings(path).embedder == StaticEmbedderSettings()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour = 1", "colour"),
        ("[model]\nmodel = 'a'\ntimeout_s = -1", "model.timeout_s"),
        ("[embedder]\ntype = 'magic'", "embedder"),
        ("[store\n", "not valid TOML"),
        ("[roles.painter]\nmodel = 'a'", "roles"),
    ],
)
def test_wrong_settings_name_the_field_and_the_file(tmp_path: Path, text: str, named: str) -> None:
    path = settings_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert named in str(caught.value)
    assert "memagent.toml" in str(caught.value)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(Path("nowhere.toml"))


def test_auto_goes_by_whether_there_is_a_model() -> None:
    assert build_design("auto", has_model=False).name == "learned"
    assert build_design("auto", has_model=True).name == "memory_r2"
    with pytest.raises(ConfigError, match="needs a language model"):
        build_design("memory_r2", has_model=False)
    with pytest.raises(UnknownPlugin, match="memory_r2"):
        build_design("memory_r3", has_model=True)


def test_a_model_object_is_used_as_it_is_and_roles_need_a_default() -> None:
    model = FunctionModel(lambda _: "")
    assert build_model(model, AgentSettings()) is model
    assert build_model(None, AgentSettings()) is None
    with pytest.raises(ConfigError, match=r"model\.model"):
        build_model(None, AgentSettings(roles={Role.JUDGE: ModelSettings(model="openai/a")}))


def test_an_embedder_plugin_is_found_by_path_and_checked() -> None:
    assert build_embedder("memagent.embed.static:HashEmbedder").dim == 256
    with pytest.raises(ConfigError, match="an embedder has id, dim and embed"):
        build_embedder("memagent.core.records:Scope")


def test_without_a_model_any_call_says_what_to_do() -> None:
    store = open_store(path=":memory:", embedder="hashing")
    agent = store.agent(Scope(user_id="ana"))
    assert isinstance(agent.model, NoModel)
    assert agent.design.name == "learned"
    store.close()
    store.close()


@pytest.mark.parametrize("name", [":memory:", "notes.db", "/tmp/notes.sqlite"])
def test_the_path_of_a_memory_is_no_model(name: str) -> None:
    with pytest.raises(ConfigError, match="the path of a memory, not the name of a model"):
        Agent(name)
