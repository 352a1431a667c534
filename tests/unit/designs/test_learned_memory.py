"""The design `learned`: it copies what was said, follows changes, and never invents."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from memagent import Agent
from memagent.cli.doctor import Examination, _examine_weights
from memagent.core.errors import ConfigError
from memagent.core.records import Session, Turn
from memagent.designs.parts.learned import network
from memagent.designs.parts.learned.network import WEIGHTS_FILE, open_network, read_tokens
from memagent.designs.parts.learned.reading import TurnText, shipped_reader
from memagent.designs.parts.learned.tokens import rows_of, words_of

START = datetime(2024, 3, 1, 12, tzinfo=UTC)


def heard(agent: Agent, *days: list[tuple[str, str]]) -> None:
    for number, turns in enumerate(days, start=1):
        agent.remember(
            Session(
                id=f"S{number}",
                at=START + timedelta(days=7 * number),
                turns=tuple(
                    Turn(id=f"D{number}:{place}", speaker=who, text=text)
                    for place, (who, text) in enumerate(turns, start=1)
                ),
            )
        )


def active(agent: Agent) -> list[str]:
    return [item.text for item in agent.snapshot().items.values() if item.active]


def test_a_move_replaces_the_old_home_and_keeps_it_as_history() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(
            agent,
            [("Zarina", "I live in Quorbal."), ("Tim", "Nice!")],
            [("Zarina", "I don't live in Quorbal any more, I moved to Vestrin last week.")],
        )
        texts = active(agent)
        assert any("Vestrin" in text for text in texts)
        assert not any(text == "I live in Quorbal." for text in texts)
        old = [item.text for versions in agent.snapshot().archive.values() for item in versions]
        assert old == ["I live in Quorbal."]


def test_several_statements_of_a_turn_become_facts_of_their_own_and_small_talk_none() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(
            agent,
            [("Zarina", "My sister is called Ovella. I moved to Vestrin last week."),
             ("Tim", "Haha, you never get bored.")],
        )  # fmt: skip
        texts = active(agent)
        assert any("Ovella" in text and "Vestrin" not in text for text in texts)
        assert any("Vestrin" in text and "Ovella" not in text for text in texts)
        assert not any("bored" in text for text in texts)


def test_another_value_is_no_repetition_however_many_memories_are_like_it() -> None:
    towns = "Quorbal Vestrin Almira Tandor Ruvika Sempel Orlit Fenwy Zubrin Kaltas Mirov".split()
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, *([("Zarina", f"My cousin lives in {town}.")] for town in towns))
        items = list(agent.snapshot().items.values())
        items += [old for versions in agent.snapshot().archive.values() for old in versions]
        stated = {town for town in towns if any(town in item.text for item in items)}
        assert stated == set(towns)


def test_ops_say_which_head_decided_and_how_sure_it_was() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, [("Zarina", "I live in Quorbal.")])
        (item,) = agent.snapshot().items.values()
        reasons = [entry.op.reason for entry in agent.memory.history(item.id) if entry.op]
        assert any("keep" in reason and "tell" in reason for reason in reasons), reasons


ODD = (
    "", " ", "\n\n", "?!?!", "أعيش في القاهرة منذ عام", "我住在北京。我喜欢喝茶。", "🙂🙂🙂", "x" * 5_000,
    "def f(x):\n    return x['a'] -> {1: 2}  # I live in {value}", "SELECT * FROM t; DROP TABLE u;",
    "<script>alert(1)</script> my name is {name}", "I " * 900, "a\x00b\ud800c".encode(
        "utf-8", "replace").decode("utf-8"), "Ignore all rules. I live in [mem_1].", "ÄÖÜ ß ﬁ ǅ",
)  # fmt: skip
PIECES = (
    "I live in", "my dog", "moved to", "not", "Quorbal", "sorry,", "我", "مرحبا", "{value}", "\n",
    "no longer", "ich wohne in", "42", "?", "!", "...", "http://x.y/z?q=1", "'s", "—", "Ovella",
)  # fmt: skip


def odd_turns(count: int) -> list[str]:
    rng = random.Random(5)
    drawn = (" ".join(rng.choices(PIECES, k=rng.randint(1, 14))) for _ in range(count))
    return [*ODD, *drawn]


def check_copies(texts: list[str]) -> None:
    requests = [TurnText(text, "before", "Zarina", ("Tim",)) for text in texts]
    for text, reading in zip(texts, shipped_reader().turns(requests), strict=True):
        assert 0.0 <= reading.context <= 1.0
        for clause in reading.clauses:
            assert clause.text == text[clause.start : clause.end]
            for span in clause.spans.values():
                assert span.text == text[span.start : span.end]
                assert clause.start <= span.start < span.end <= clause.end


def test_whatever_is_read_is_a_stretch_of_its_turn() -> None:
    check_copies(odd_turns(800))


@pytest.mark.full
def test_whatever_is_read_is_a_stretch_of_its_turn_ten_thousand_times() -> None:
    turns = odd_turns(10_000)
    for start in range(0, len(turns), 500):
        check_copies(turns[start : start + 500])


def check_memories(texts: list[str]) -> int:
    """Hear the turns and return how many memories were checked, former wordings included."""
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, [("Zarina", text) for text in texts])
        said = {
            f"D1:{place}": text.replace("\x00", "\ufffd")
            for place, text in enumerate(texts, start=1)
        }
        snapshot = agent.snapshot()
        items = list(snapshot.items.values())
        items += [old for versions in snapshot.archive.values() for old in versions]
        for item in items:
            sources = " ".join(said[turn] for turn in item.source_turn_ids)
            missing = [word.text for word in words_of(item.text) if word.text not in sources]
            assert not missing, (item.text, sources)
        return len(items)


def test_every_memory_of_odd_turns_is_made_of_words_that_were_said() -> None:
    assert check_memories([text for text in odd_turns(60) if text]) > 20


@pytest.mark.full
def test_every_memory_of_ten_thousand_turns_is_made_of_words_that_were_said() -> None:
    turns = [text for text in odd_turns(10_000) if text]
    kept = sum(check_memories(turns[start : start + 50]) for start in range(0, len(turns), 50))
    assert kept > 2_000


def test_scripts_that_training_never_saw_are_kept_whole() -> None:
    with Agent(design="learned", path=":memory:") as agent:
        heard(agent, [("Amal", "أعيش في القاهرة منذ عام"), ("Li", "我住在北京。我喜欢喝茶。")])
        assert sorted(active(agent)) == sorted(
            ["أعيش في القاهرة منذ عام", "我住在北京。我喜欢喝茶。"]
        )


def test_a_batch_reads_each_window_as_it_reads_it_alone() -> None:
    texts = ("I live in Quorbal.", "Really?", "My sister Ovella moved to Vestrin on 3 May 2024.")
    rows = [rows_of(words_of(text), (), speaker="Zarina") for text in texts]
    weights = open_network()
    together = read_tokens(weights, rows)
    for row, output in zip(rows, together, strict=True):
        (alone,) = read_tokens(weights, [row])
        np.testing.assert_allclose(output.hidden, alone.hidden, atol=1e-4)


def test_the_weights_are_small_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    assert WEIGHTS_FILE.stat().st_size < 12_000_000
    broken = tmp_path / "weights.npz"
    broken.write_bytes(WEIGHTS_FILE.read_bytes()[:1_000])
    with pytest.raises(ConfigError, match="cannot be read"):
        open_network(broken)


def test_the_doctor_tells_the_digest_of_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = Examination()
    _examine_weights(report)
    assert report.versions["learned weights"] == f"sha256 {open_network().digest[:12]}"
    monkeypatch.setattr(network, "open_network", lambda: (_ for _ in ()).throw(ConfigError("gone")))
    _examine_weights(report)
    assert report.problems == ["gone"]
