"""Plug-ins load by declared name or by dotted path, and every way it can go wrong says what to do."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest

from memagent.core.errors import ConfigError, MissingExtra, UnknownPlugin
from memagent.plugins import GROUPS, Group, available, load


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a distribution on a path of its own: `install(name, entry_points={group:
    {name: target}}, files={path: source})`.
    """

    def add(
        name: str, *, entry_points: dict[str, dict[str, str]], files: dict[str, str] | None = None
    ) -> None:
        site = tmp_path / name
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8"
        )
        lines: list[str] = []
        for group, table in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {target}" for key, target in table.items())]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        for path, source in (files or {}).items():
            (site / path).write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(str(site))

    return add


def test_a_declared_name_loads_the_object_itself(install) -> None:
    source = "DESIGN = object()\n"
    install(
        "acme_one",
        entry_points={"memagent.designs": {"acme": "one_mod:DESIGN"}},
        files={"one_mod.py": source},
    )
    assert load("designs", "acme") is import_module("one_mod").DESIGN


def test_available_lists_a_group_without_importing_anything(install) -> None:
    install(
        "acme_two",
        entry_points={"memagent.models": {"zeta": "absent_module:X", "acme": "absent_module:Y"}},
    )
    names = available("models")
    assert {"acme", "zeta"} <= set(names)
    assert list(names) == sorted(names)
    assert "zeta" not in available("designs")


def test_a_dotted_path_reaches_any_object() -> None:
    assert load("designs", "json:JSONDecoder.decode") is json.JSONDecoder.decode


def test_an_unknown_name_lists_close_matches_and_the_reinstall_hint(install) -> None:
    install("acme_three", entry_points={"memagent.journals": {"parchment": "json:loads"}})
    with pytest.raises(UnknownPlugin) as caught:
        load("journals", "parchmint")
    message = str(caught.value)
    assert "did you mean 'parchment'?" in message
    assert "package.module:attribute" in message
    assert "pip install -e ." in message


def test_an_unknown_group_names_the_groups() -> None:
    with pytest.raises(
        ConfigError, match=r"did you mean 'designs'\?.*the groups are designs, models"
    ):
        load(cast("Group", "design"), "verbatim")
    with pytest.raises(ConfigError, match="no plug-in group 'nonsense'"):
        available(cast("Group", "nonsense"))
    assert available(GROUPS[-1]) == available("techniques")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package:X", "no module 'no_such_package'"),
        ("json.no_such_module:X", r"no module 'json\.no_such_module'"),
        ("json:laods", "has no 'laods' .did you mean 'loads'"),
        ("json:", "has the form"),
        (":loads", "has the form"),
    ],
)
def test_a_dotted_path_that_leads_nowhere_says_where_it_breaks(path: str, words: str) -> None:
    with pytest.raises(UnknownPlugin, match=words):
        load("models", path)


def test_a_stale_declaration_asks_for_a_reinstall(install) -> None:
    install(
        "acme_four",
        entry_points={
            "memagent.indexes": {"moved": "module_that_moved:Index", "renamed": "json:OldName"}
        },
    )
    for name in ("moved", "renamed"):
        with pytest.raises(UnknownPlugin, match=r"from acme_four.*pip install -e \."):
            load("indexes", name)


def test_a_library_that_a_plugin_lacks_is_not_an_unknown_plugin(install) -> None:
    source = "import absent_vendor\n"
    install(
        "acme_five",
        entry_points={"memagent.models": {"needy": "needy_mod:X"}},
        files={"needy_mod.py": source},
    )
    with pytest.raises(ConfigError, match="No module named 'absent_vendor'") as caught:
        load("models", "needy")
    assert not isinstance(caught.value, UnknownPlugin)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_plugin_that_names_its_missing_extra_keeps_its_own_message(install) -> None:
    source = "from memagent.core.errors import MissingExtra\nraise MissingExtra('llm', needed_for='the acme model')\n"
    install(
        "acme_six",
        entry_points={"memagent.models": {"extra": "extra_mod:X"}},
        files={"extra_mod.py": source},
    )
    with pytest.raises(MissingExtra, match=r'pip install "memagent\[llm\]"'):
        load("models", "extra")


def test_a_plugin_that_crashes_on_import_is_blamed_by_name(install) -> None:
    source = "1 / 0\n"
    install(
        "acme_seven",
        entry_points={"memagent.models": {"broken": "broken_mod:X"}},
        files={"broken_mod.py": source},
    )
    with pytest.raises(ConfigError, match=r"'broken'.*acme_seven.*ZeroDivisionError"):
        load("models", "broken")


def test_two_distributions_may_not_disagree_about_a_name(install) -> None:
    install("acme_eight", entry_points={"memagent.embedders": {"twin": "json:loads"}})
    install("acme_nine", entry_points={"memagent.embedders": {"twin": "json:dumps"}})
    with pytest.raises(
        ConfigError, match=r"declared twice.*acme_nine says json:dumps.*acme_eight says json:loads"
    ):
        load("embedders", "twin")


def test_a_distribution_found_twice_is_no_disagreement(install) -> None:
    install("acme_ten", entry_points={"memagent.embedders": {"same": "json:loads"}})
    install("acme_eleven", entry_points={"memagent.embedders": {"same": "json:loads"}})
    assert load("embedders", "same") is json.loads
    assert available("embedders").count("same") == 1
