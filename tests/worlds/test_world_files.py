"""Worlds are files: the page on worlds shows a complete one, faults are listed, the schema
follows the models.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from places import ROOT
from typer.testing import CliRunner

from environments import EnvironmentFault, check_environment
from environments.datasets.synthetic import synthetic
from environments.evaluate import app
from environments.tasks.rewrite import Rewrite
from environments.worlds.language.checks import check_grammar
from environments.worlds.language.loading import (
    FOLDER_VARIABLE,
    LEVELS,
    grammar_of,
    open_world,
    world_schema,
)
from train.settings.run import RunSettings

PAGE = (ROOT / "docs" / "worlds.md").read_text(encoding="utf-8")
DATA = ROOT / "environments" / "worlds" / "data"


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """The world of the page, in a folder of its own."""
    block = re.search(r"^```toml title=.*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert block is not None
    folder = tmp_path / "office"
    folder.mkdir()
    (folder / "world.toml").write_text(block[1], encoding="utf-8")
    return folder


def test_the_world_of_the_page_is_played(office: Path) -> None:
    env = synthetic(office, sessions=4, episodes=2)
    check_environment(env, episodes=1, sessions=2)
    episode = env.episode("test", 1)
    assert episode.id == "synthetic-office-0-test-1" and episode.probes
    assert any("basement" in turn.text or "library" in turn.text for turn in episode.turns)
    assert env.world_of(episode.id) == env.truth(episode)
    task = Rewrite(level=office, keys=1, overwrites=1)
    assert task.episode("train", 0).probes


def test_the_command_plays_a_world_by_its_path(office: Path, tmp_path: Path) -> None:
    options = "--episodes 1 --sessions 3 --arms ideal,empty --json --out".split()
    run = ["synthetic", "--level", str(office), *options, str(tmp_path / "run")]
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.output
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["worlds"]["level"] == str(office) and config["worlds"]["knobs"]["facts"] == 2.0


def test_training_settings_name_a_world_by_its_path(office: Path) -> None:
    part = RunSettings.model_validate({"environment": {"level": str(office)}}).environment
    assert synthetic(part.level, sessions=2).episode("train", 0).turns


def test_a_name_is_looked_up_in_the_folder_of_worlds(
    office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (office.parent / "named.toml").write_bytes((office / "world.toml").read_bytes())
    with pytest.raises(EnvironmentFault, match="tiny, standard, rich, and no world lies at"):
        open_world("named.toml")
    monkeypatch.setenv(FOLDER_VARIABLE, str(office.parent))
    assert open_world("named.toml").name == "named"


def test_an_included_world_is_added_to(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(
        'include = ["tiny"]\nkeep = ["lives_in", "likes"]\nleast = 2\n'
        'fillers = ["look,"]\n[config]\nturns = 9\n[pools]\nfoods = ["rice", "soup", "cake"]\n',
        encoding="utf-8",
    )
    world, tiny = open_world(tmp_path), open_world("tiny")
    assert [relation.name for relation in world.grammar.relations] == ["lives_in", "likes"]
    assert world.grammar.fillers == (*tiny.grammar.fillers, "look,")
    assert world.grammar.pools == {**tiny.grammar.pools, "foods": ("rice", "soup", "cake")}
    assert (world.config.turns, world.config.facts) == (9, tiny.config.facts)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("small_talk =", "smalltalk ="), "smalltalk: Unexpected keyword argument"),
        (('"rooms"', '"halls"'), "no pool 'halls'"),
        (("turns = 6", "turns = 0"), "turns must be at least 1"),
        (("least = 2", 'include = ["more.toml"]'), "more.toml"),
        (("least = 2", "least ="), "world.toml: Invalid value"),
        (("least = 2", 'include = ["tiny"]\nkeep = ["rules"]'), "no relation rules is included"),
        (('kind = "state"', 'kind = "mood"'), "relations.0.kind: Input should be"),
    ],
)
def test_faults_of_a_world_are_told(office: Path, change: tuple[str, str], complaint: str) -> None:
    file = office / "world.toml"
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=f"(?s)world 'office'.*{re.escape(complaint)}"):
        open_world(office)


def test_the_schema_follows_the_models_and_holds_the_shipped_files() -> None:
    """Write it anew with `python tests/test_world_files.py`."""
    schema = json.loads((DATA / "schema.json").read_text(encoding="utf-8"))
    assert schema == world_schema()
    shipped = sorted(DATA.rglob("*.toml"))
    assert len(shipped) == 23
    for file in shipped:
        text = file.read_text(encoding="utf-8")
        jsonschema.validate(tomllib.loads(text), schema)
        directive, header = text.splitlines()[:2]
        assert (file.parent / directive.removeprefix("#:schema ")).resolve() == DATA / "schema.json"
        assert header.startswith("# ")
    for folder in {file.parent for file in shipped}:
        assert len(list(folder.glob("*.toml"))) <= 16


def test_shipped_worlds_are_read_from_the_package() -> None:
    data = files("environments.worlds") / "data"
    for level in LEVELS:
        assert (data / level / "world.toml").is_file()
        check_grammar(grammar_of(level), least=2 if level == "tiny" else 8)


if __name__ == "__main__":
    text = json.dumps(world_schema(), indent=2) + "\n"
    (DATA / "schema.json").write_text(text, encoding="utf-8")
