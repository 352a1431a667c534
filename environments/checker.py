"""`check_environment`: a check of the promises of any environment.

It plays the first episodes with an agent that needs no model.
"""

from __future__ import annotations

import asyncio
from itertools import islice

from environments.base import Environment, Split
from environments.play.rollout import play, replay_session
from environments.play.snapshots import snapshot_from_json, snapshot_to_json, trace_digest
from environments.records import Episode, Score
from environments.views import truncate
from memagent.build import open_agent
from memagent.core.snapshot import EMPTY


def check_environment(
    env: Environment, *, split: Split = "all", episodes: int = 2, sessions: int = 3
) -> None:
    """Check determinism, ids, the JSON of episodes, scores and memories, and replays.

    Raises `AssertionError` in plain words.

    The first `episodes` episodes are played over at most `sessions` sessions by the
    design `verbatim`. Runs an event loop of its own.
    """
    listed, listed_again = (list(islice(env.episodes(split), episodes)) for _ in range(2))
    assert listed, f"{env.name}: split {split!r} has no episode"
    assert listed == listed_again, (
        f"{env.name}: asking for the episodes twice must give equal ones in the same order"
    )
    ids = [episode.id for episode in listed]
    assert len(set(ids)) == len(ids), f"{env.name}: episode ids must be unique, these are {ids}"
    for episode in listed:
        again = Episode.model_validate_json(episode.model_dump_json())
        assert again == episode, f"{env.name}: episode {episode.id!r} must survive JSON unchanged"
        asyncio.run(_check_playing(env, episode, sessions))


async def _check_playing(env: Environment, episode: Episode, sessions: int) -> None:
    name = f"{env.name}, episode {episode.id!r}"
    episode = truncate(episode, sessions)
    async with open_agent(path=":memory:", design="verbatim", embedder="hashing") as agent:
        trajectory = await play(agent.at(EMPTY), episode)
        assert trajectory.failure is None, f"{name}: playing failed: {trajectory.failure}"
        assert agent.snapshot() == EMPTY, f"{name}: playing a fork must leave its parent as it was"
        scores = [await env.score(episode, trajectory) for _ in range(2)]
        assert scores[0] == scores[1], f"{name}: scoring twice must give equal scores"
        assert Score.model_validate_json(scores[0].model_dump_json()) == scores[0], (
            f"{name}: a score must survive JSON"
        )
        again = await play(agent.at(EMPTY), episode)
        digests, repeated = (
            [trace.after.digest for trace in played.traces] for played in (trajectory, again)
        )
        assert digests == repeated, f"{name}: the same sessions must lead to the same memories"
        for place, trace in enumerate(trajectory.traces):
            held = len(trace.before.items)
            # The anchor of a replay is the memory that it starts from.
            rerun = await replay_session(agent, episode, session=place, anchor=trace.before)
            assert rerun.before.digest == trace.before.digest, (
                f"{name}: a replay must start from its anchor"
            )
            assert rerun.after.digest == trace.after.digest, (
                f"{name}: replaying session {place} must end where it ended"
            )
            assert len(trace.before.items) == held, (
                f"{name}: a replay must leave its anchor as it was"
            )
            assert trace_digest(rerun) == trace_digest(trace), (
                f"{name}: replaying session {place} must repeat its trace"
            )
            read_back = snapshot_from_json(snapshot_to_json(trace.before))
            assert agent.at(read_back).snapshot().digest == trace.before.digest, (
                f"{name}: a memory restored from JSON must have the digest it had"
            )
            restored = await replay_session(agent, episode, session=place, anchor=read_back)
            assert trace_digest(restored) == trace_digest(trace), (
                f"{name}: replaying session {place} from a memory restored from JSON must repeat "
                "its trace"
            )
