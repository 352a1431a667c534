"""Worlds as Gymnasium environments: actions are the agent's own replies, and what the
memory earns is the reward.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from places import ROOT

from environments import EnvironmentFault
from environments.datasets.synthetic import synthetic
from environments.demonstrations.oracle import OracleModel
from environments.tasks.label_learning import LabelLearning
from memagent.core.exchange import Message, ModelRequest, Role

pytest.importorskip("gymnasium", reason='needs the extra: pip install "memagent[gym]"')
import gymnasium
from gymnasium.utils.env_checker import check_env

from environments.gym_adapter import WORLDS, MemoryGym, make, register

SESSIONS: dict[str, Any] = {"sessions": 4}


@pytest.fixture
def gym() -> Iterator[MemoryGym]:
    opened = make(knobs=SESSIONS, embedder="hashing")
    yield opened
    opened.close()
    opened.close()


def played(
    gym: MemoryGym, policy: Callable[[str], str], episode: int
) -> tuple[float, dict[str, Any]]:
    """An episode with a policy from observations to actions."""
    shown, _ = gym.reset(options={"episode": episode})
    while True:
        shown, reward, over, cut, info = gym.step(policy(shown))
        assert not cut
        if over:
            return reward, info
        assert reward == 0.0 and shown


def facts(shown: str) -> list[int]:
    part = shown.rpartition("<facts>")[2].partition("</facts>")[0]
    return [int(number) for number in re.findall(r"(?m)^(\d+)\. ", part)]


def adding(shown: str) -> str:
    return json.dumps({"ops": [{"op": "ADD", "fact": number} for number in facts(shown)]})


def nothing(shown: str) -> str:
    return json.dumps({"ops": [{"op": "NOOP", "fact": number} for number in facts(shown)]})


def ideal(episode: int) -> Callable[[str], str]:
    world = synthetic("tiny", **SESSIONS)
    made = world.episode("train", episode)
    oracle = OracleModel(world.truth(made), made.sessions, world.lexicon("train"))

    def policy(shown: str) -> str:
        request = ModelRequest(role=Role.MANAGER, messages=(Message(role="user", content=shown),))
        return asyncio.run(oracle.complete(request)).text

    return policy


def test_gymnasium_finds_nothing_to_say_against_it() -> None:
    register()
    register()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("memagent/Synthetic-tiny-v0", knobs=SESSIONS, embedder="hashing")
        check_env(env.unwrapped)
        shown, info = env.reset(seed=7)
        assert env.reset(seed=7)[0] == shown and env.reset(seed=8)[0] != shown
        assert info == {"role": "manager", "session": "S1", "calls": 0}
        env.close()


@pytest.mark.parametrize("name", WORLDS)
def test_every_registered_world_opens(name: str) -> None:
    register()
    env = gymnasium.make(f"memagent/{name}-tiny-v0", embedder="hashing")
    shown, _ = env.reset(seed=0)
    assert '{"ops": [' in shown and facts(cast(str, shown))
    env.close()


def test_the_reward_is_what_the_memory_earns(gym: MemoryGym) -> None:
    for episode in range(3):
        best, told = played(gym, ideal(episode), episode)
        worst, untold = played(gym, nothing, episode)
        assert told["refused"] <= 1 and untold["memory_items"] == 0
        assert best == pytest.approx(told["score"], abs=0.05) and best > worst + 0.5
        assert told["score"] >= played(gym, adding, episode)[1]["score"]
        assert played(gym, ideal(episode), episode) == (best, told)


def test_only_a_consolidated_memory_earns_everything_where_facts_are_overwritten() -> None:
    gym = make("rewrite", knobs={"overwrites": 4, "gap": 1}, embedder="hashing")
    policy_scores = [played(gym, adding, episode)[1]["score"] for episode in range(3)]
    world = cast(Any, gym)._world
    for episode in range(3):
        made = world.episode("train", episode)
        oracle = OracleModel(world.truth(made), made.sessions, world.lexicon("train"))

        def policy(shown: str, oracle: OracleModel = oracle) -> str:
            request = ModelRequest(
                role=Role.MANAGER, messages=(Message(role="user", content=shown),)
            )
            return asyncio.run(oracle.complete(request)).text

        assert played(gym, policy, episode)[1]["score"] == 1.0
    assert sum(policy_scores) / 3 < 0.7
    gym.close()


def test_replies_are_read_and_checked_by_the_agent_itself(gym: MemoryGym) -> None:
    first, told = gym.reset(options={"episode": 0})
    again, reward, over, _, info = gym.step("let me think")
    assert not over and reward == 0.0
    assert (told["session"], info["session"], info["calls"]) == ("S1", "S1", 1)
    assert again.startswith(first) and len(again) > len(first), (
        "what cannot be read is asked for once more"
    )
    _, info = played(
        gym, lambda shown: '{"ops": [{"op": "DELETE", "id": "mem_nobody", "fact": 0}]}', 0
    )
    assert info["refused"] == info["calls"] and info["memory_items"] == 0


def test_the_extractor_can_be_the_one_who_acts() -> None:
    both = frozenset((Role.EXTRACTOR, Role.MANAGER))
    gym = MemoryGym(synthetic("tiny", sessions=2), roles=both, embedder="hashing")
    _, info = gym.reset(seed=0)
    assert info["role"] == "extractor"
    seen = []
    over = False
    while not over:
        seen.append(info.get("role"))
        _, _, over, _, info = gym.step('{"facts": []}')
    assert seen == ["extractor", "extractor"] and info["memory_items"] == 0
    gym.close()


def test_without_gymnasium_it_is_said_what_to_install() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import environments; import environments.gym_adapter"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "memagent[gym]"' in done.stderr


def test_what_the_page_shows_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    blocks = re.findall(
        r"^```python\n(.*?)^```",
        page.partition("## Further generators")[2],
        re.MULTILINE | re.DOTALL,
    )
    assert len(blocks) >= 2
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_it_is_said_what_cannot_be_played() -> None:
    with pytest.raises(EnvironmentFault, match="label_learning has no notes"):
        MemoryGym(LabelLearning(level="tiny"))
    with pytest.raises(EnvironmentFault, match="roles must hold extractor or manager"):
        MemoryGym(synthetic("tiny"), roles=frozenset((Role.ANSWERER,)))
    gym = make(embedder="hashing")
    with pytest.raises(EnvironmentFault, match="reset the environment first"):
        gym.step("{}")
    gym.close()
