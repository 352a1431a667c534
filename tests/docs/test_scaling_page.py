"""`docs/scaling.md` is true: the model gives its table, its commands save and restore a store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from places import ROOT

from memagent.build import open_store
from memagent.core.records import Scope
from memagent.journal.sqlite import service_file
from memagent.memory.bank import system_clock
from memagent.memory.facade import Memory
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.leases import KeyRing

if TYPE_CHECKING:
    from postgres_kit import Postgres

PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "scripts" / "ten_million_users.py"
ANA = Scope(user_id="ana")


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = spec_from_file_location("ten_million_users", SCRIPT)
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def block(name: str) -> str:
    """Return the commands under a mark of the page."""
    found = re.findall(rf"<!-- {name} -->\n```bash\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1, f"the page has {len(found)} blocks {name!r}"
    return found[0]


def run(name: str, folder: Path, **variables: str) -> None:
    """Run a block of the page as a user would, stopping at the first command that fails."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block(name)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def texts(place: str | Path) -> set[str]:
    store = open_store(path=place, read_only=True)
    try:
        bank = store.bank(ANA)
        await bank.sync()
        return {item.text for item in bank.state.active()}
    finally:
        store.close()


# -- the model -------------------------------------------------------------------------


def test_the_table_of_the_page_is_what_the_model_gives(model: ModuleType) -> None:
    given = model.Inputs()
    shown = PAGE.split("<!-- ten million -->\n")[1].split("<!-- /ten million -->")[0]
    assert shown == model.table(given, [100_000, 1_000_000, 10_000_000]), (
        "run the script with --into docs/scaling.md"
    )
    with pytest.raises(ValueError, match="ten million"):
        model.replaced("no marks", "text")


def test_the_cache_formula_is_what_a_cache_does(model: ModuleType) -> None:
    formula, simulated = model.check()
    assert formula == pytest.approx(simulated, abs=0.01) and 0.1 < simulated < 0.9
    ones = np.ones(10)
    assert model.holding_time(ones, ones, ones, 10.0) == np.inf
    held = model.holding_time(ones, ones, ones, 5.0)
    assert -np.expm1(-held) == pytest.approx(0.5)


def test_the_model_answers_changes_of_its_inputs_as_it_must(model: ModuleType) -> None:
    def nodes(routed: bool = True, **changes: float) -> int:
        given = model.Inputs(users=200_000, **{"checkpoint_from": 1e9, **changes})
        return model.plan(given, model.crowd(given), routed=routed).nodes

    base = nodes(requests_day=40.0)
    assert base > 1
    assert nodes(requests_day=80.0) > base > nodes(requests_day=40.0, replay_us=50.0)
    assert base > nodes(requests_day=40.0, checkpoint_from=512.0)
    assert nodes(requests_day=40.0, ram_gb=256.0) < base < nodes(requests_day=40.0, routed=False)
    given = model.Inputs(users=200_000, requests_day=40.0, checkpoint_from=1e9)
    users = model.crowd(given)
    assert users.count.sum() == 200_000
    assert float((users.count * users.rate).sum()) * 86_400 / users.peak == pytest.approx(
        200_000 * 40.0, rel=0.15
    )
    fleet = model.plan(given, users, routed=True)
    assert (fleet.replay_cores + fleet.serve_cores) / (
        fleet.nodes * given.cores
    ) <= given.utilisation
    calm = model.failure(given, users, fleet)
    assert calm is not None and calm.banks > 0 and calm.rows_s > 0 and calm.delay_s == 0.0
    tight = model.Inputs(
        users=200_000, requests_day=40.0, utilisation=0.97, checkpoint_from=1e9
    )  # no room for the work of one node in six
    late = model.failure(tight, users, model.plan(tight, users, routed=True))
    assert late is not None and late.delay_s > 60.0
    tiny = model.Inputs(users=10)
    assert (
        model.failure(tiny, model.crowd(tiny), model.plan(tiny, model.crowd(tiny), routed=True))
        is None
    )
    assert 1.0 <= model.spread(given, users, 16) < 2.0


# -- backup and restore ----------------------------------------------------------------


async def test_the_commands_for_sqlite_save_beside_a_writer_and_bring_back(tmp_path: Path) -> None:
    store = open_store(path=tmp_path / "memory.db")
    keys = ServiceDatabase(service_file(tmp_path / "memory.db"))
    try:
        memory = Memory(store.bank(ANA))
        await memory.add_many([f"fact {at}" for at in range(50)])
        KeyRing(keys).create(name="saved", scopes=["chat"], user_id=None, at=system_clock())
        run("backup sqlite", tmp_path)  # the writer is open
        await memory.add("after the backup")
        KeyRing(keys).create(name="later", scopes=["chat"], user_id=None, at=system_clock())
    finally:
        keys.close()
        store.close()
    assert len(await texts(tmp_path / "memory.db")) == 51
    run("restore sqlite", tmp_path)
    assert await texts(tmp_path / "memory.db") == {f"fact {at}" for at in range(50)}
    keys = ServiceDatabase(service_file(tmp_path / "memory.db"))
    assert [key.name for key in KeyRing(keys).stored()] == ["saved"]
    keys.close()


async def test_the_commands_for_postgresql_save_and_bring_back(
    postgres: Postgres, tmp_path: Path
) -> None:
    if postgres.admin_url is None or postgres.folder is None or postgres.programs is None:
        pytest.skip("dumping takes a server of our own")
    import psycopg

    url = f"postgresql://memagent@/memagent?host={postgres.folder.parent}"
    admin = {
        "PGHOST": str(postgres.folder.parent),
        "PGUSER": "root_of_tests",
        "PATH": f"{Path(sys.executable).parent}:{postgres.programs}:{os.environ['PATH']}",
        "MEMAGENT_STORE__TYPE": "postgres",
        "MEMAGENT_STORE__URL": url,
    }

    def as_admin(*statements: str) -> None:
        assert postgres.admin_url is not None
        with psycopg.connect(postgres.admin_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    async def add(*facts: str) -> None:
        store = open_store(path=url)
        try:
            await Memory(store.bank(ANA)).add_many(list(facts))
        finally:
            store.close()

    as_admin("CREATE ROLE memagent LOGIN", "CREATE DATABASE memagent OWNER memagent")
    try:
        await add(*(f"fact {at}" for at in range(50)))
        run("backup postgres", tmp_path, **admin)
        await add("after the backup")
        as_admin("DROP DATABASE memagent WITH (FORCE)")
        run("restore postgres", tmp_path, **admin)
        assert await texts(url) == {f"fact {at}" for at in range(50)}
    finally:
        as_admin("DROP DATABASE IF EXISTS memagent WITH (FORCE)", "DROP ROLE IF EXISTS memagent")
