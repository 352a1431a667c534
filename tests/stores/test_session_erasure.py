"""Random sessions are erased in random order, from stored forks and checkpoints too, and the
files are read afterwards. `MEMAGENT_ERASED_SESSIONS` sets how many.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from checkpoint_kit import ANA, History, open_hashing, same_memory, without_checkpoint

from memagent import Agent
from memagent.core.records import Scope, Session, Turn
from memagent.core.trials import Outcome, TrialStep
from memagent.designs.base import RunningValue
from memagent.experience import TrialReport, end_trial, start_trial
from memagent.journal import reader
from memagent.memory.care import erasure
from memagent.memory.facade import Memory

SESSIONS = int(os.environ.get("MEMAGENT_ERASED_SESSIONS", "60"))
A_STORE = 20
NAMES = "Ana Bo Cleo Dan Eve Finn Gus Hal Ida Jon".split()
PLACES = "Rome Oslo Paris Berlin Kyoto Lima".split()
SAID = (
    "I met {a} in {p} last week",
    "{a} moved to {p}",
    "My sister {a} adopted a dog named {b}",
    "I will visit {a} and {b} in {p} on 3 May 2024",
    "Actually {a} now lives in {p}",
    "I work with {b} at a bakery in {p}",
)


def said(rng: Random) -> str:
    a, b = rng.sample(NAMES, 2)
    return rng.choice(SAID).format(a=a, b=b, p=rng.choice(PLACES))


def marked(number: int) -> str:
    return f"xylophonist{number:04d}quarantine"


def random_session(rng: Random, number: int) -> Session:
    """A session about people whom others name too, and a word that it alone has."""
    texts = [said(rng) for _ in range(rng.randint(1, 5))]
    texts.insert(rng.randint(0, len(texts)), f"My dog is called {marked(number)} by {NAMES[1]}")
    turns = (
        Turn(id=f"s{number}:{at}", speaker=rng.choice(NAMES), text=text)
        for at, text in enumerate(texts)
    )
    return Session(id=f"s{number}", turns=tuple(turns))


def left_of(path: Path, number: int) -> list[str]:
    """Return the files that hold the word of a session."""
    word = marked(number).encode()
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    return [file.name for file in files if word in file.read_bytes()]


@pytest.mark.parametrize("seed", range(-(-SESSIONS // A_STORE)))
async def test_every_random_session_goes_from_everywhere(tmp_path: Path, seed: int) -> None:
    rng, path = Random(seed), tmp_path / "m.db"
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        for number in range(A_STORE):
            agent.remember(random_session(rng, number))
    assert all(left_of(path, number) for number in range(A_STORE))
    store = open_hashing(path)
    memory = Memory(store.bank(Scope(user_id="ana")))
    fork = Memory(store.bank(Scope(user_id="ana", run_id="fork")))
    stranger = Memory(store.bank(Scope(user_id="bo")))
    await fork.restore(await memory.snapshot())
    await fork.add(f"{NAMES[2]} has a boat, says this fork.")
    await stranger.restore(await memory.snapshot())
    same_name = Memory(store.bank(Scope(user_id="ana", run_id="other")))
    await same_name.bank.store_session(
        Session(id="s0", turns=(Turn(id="o:1", speaker="Bo", text="A talk of the same name."),))
    )
    assert store.checkpoints is not None
    order = list(range(A_STORE))
    rng.shuffle(order)
    for number in order:
        for each in (memory, fork):
            await each.bank.refresh()
            store.checkpoints.save(each.bank)
        receipt = await memory.erase_session(f"s{number}")
        assert receipt.scrubbed and receipt.unproven is None and receipt.copies == 1
        assert {"m.db", "m.db-wal"} <= {place.name for place in receipt.places}
        for kept in (memory, fork):
            assert f"s{number}" not in {session.id for session in await kept.sessions()}
            assert not [item for item in await kept.get_all() if marked(number) in item.text]
    assert [session.id for session in await same_name.sessions()] == ["s0"]
    assert len(await stranger.sessions()) == A_STORE, "nobody else loses anything"
    await stranger.reset(user_id="bo")
    assert await memory.get_all() == [] and len(await fork.get_all()) == 1
    store.close()
    assert [left_of(path, number) for number in range(A_STORE)] == [[]] * A_STORE


@pytest.mark.parametrize("seed", range(4))
async def test_sessions_go_from_histories_of_every_kind(tmp_path: Path, seed: int) -> None:
    """Restored, undone, tried and merged memories replay after each erasure."""
    store = open_hashing(tmp_path / "m.db")
    memory = Memory(store.bank(Scope(user_id="ana")))
    history = History(seed)
    await history.write(memory.bank, 60)
    history.snapshots.clear()
    for session in await memory.sessions():
        receipt = await memory.erase_session(session.id)
        assert receipt.scrubbed and receipt.unproven is None
        await memory.bank.refresh()
    assert await memory.sessions() == []
    digest = (await memory.bank.sync()).digest()
    store.close()
    again = open_hashing(tmp_path / "m.db")
    assert (await again.bank(Scope(user_id="ana")).sync()).digest() == digest
    again.close()


async def test_an_erased_memory_goes_from_a_stored_fork_and_others_are_named(
    tmp_path: Path,
) -> None:
    store = open_hashing(tmp_path / "m.db")
    memory = Memory(store.bank(Scope(user_id="ana")))
    item = await memory.add("The password of Ana is xyzzy-4711.")
    fork = Memory(store.bank(Scope(user_id="ana", run_id="fork")))
    await fork.restore(await memory.snapshot())
    await fork.update(item.id, "The password of Ana was xyzzy-4711 until May.")
    run = Memory(store.bank(Scope(user_id="ana", run_id="run")))
    other = await run.add("Somebody said: The password of Ana is xyzzy-4711. Really.")
    receipt = await memory.erase(item.id)
    assert await fork.get_all(include_deleted=True) == []
    assert (receipt.copies, receipt.left_in) == (1, (other.id,))
    assert not receipt.gone, "the other memory still says it, and the files hold it"
    store.close()


@pytest.mark.parametrize("seed", range(12))
async def test_what_is_taken_out_leaves_what_a_replay_makes(tmp_path: Path, seed: int) -> None:
    """Memories and sessions go one by one; the memory is compared with a new one each time.

    Every other seed begins from a checkpoint.
    """
    rng, path = Random(seed), tmp_path / "m.db"
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    history = History(100 + seed)
    await history.write(memory.bank, 80)
    history.snapshots.clear()
    if seed % 2:
        await memory.bank.refresh()
        assert store.checkpoints is not None
        store.checkpoints.save(memory.bank)
        store.close()
        store = open_hashing(path)
        memory = Memory(store.bank(ANA))
    await memory.search("tea")
    memory.bank.state.orders.by("change", memory.bank.state)
    for _ in range(6):
        sessions = [session.id for session in await memory.sessions()]
        if rng.random() < 0.4 and sessions:
            await memory.erase_session(rng.choice(sessions))
        elif items := sorted(memory.bank.state.touched):  # those deleted with all others too
            gone = rng.choice(items)
            await memory.erase(gone, keep_turns=rng.random() < 0.5)
            rows = [row.model_dump_json() async for row in memory.bank.rows()]
            assert not any(f'"{gone}"' in row for row in rows)
        fresh = without_checkpoint(store)
        await same_memory(memory.bank, fresh, texts=["tea", "Oslo"])
        for name in ("age", "change", "expiry", "source"):
            orders = [list(b.state.orders.by(name, b.state)) for b in (memory.bank, fresh)]
            assert orders[0] == orders[1], name
        await history.write(memory.bank, 3)
    store.close()


async def test_what_an_erased_trial_counted_is_not_counted_any_more(tmp_path: Path) -> None:
    store = open_hashing(tmp_path / "m.db")
    memory = Memory(store.bank(ANA))
    item = await memory.add("Turn the key twice.")
    trial = await start_trial(memory.bank, "open the door", [item])
    told = TrialReport(trial=trial, outcome=Outcome(reward=1.0), steps=(TrialStep(action="turn"),))
    await end_trial(memory.bank, told, RunningValue())
    assert item.id in memory.bank.state.stats
    await memory.erase_session(trial.id)
    assert item.id not in memory.bank.state.stats
    await same_memory(memory.bank, without_checkpoint(store), texts=["key"])
    store.close()


async def test_one_memory_goes_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a talk of many sessions few entries are decoded, and the state is not made anew."""
    path, rng = tmp_path / "m.db", Random(1)
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        for number in range(40):
            agent.remember(random_session(rng, number))
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    await memory.bank.sync()
    decoded: list[bytes] = []
    monkeypatch.setattr(erasure, "_state_of", None)
    real = reader.decode_entry
    monkeypatch.setattr(reader, "decode_entry", lambda body: decoded.append(body) or real(body))
    (gone,) = [item for item in await memory.get_all() if marked(7) in item.text]
    receipt = await memory.erase(gone.id)
    assert (receipt.items, receipt.unproven) == (1, None)
    assert 0 < len(decoded) < len([row async for row in memory.bank.rows()]) // 4
    await same_memory(memory.bank, without_checkpoint(store), texts=["dog"])
    store.close()
    assert left_of(path, 7) == []
