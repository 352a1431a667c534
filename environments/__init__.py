"""Environments: multi-session episodes with questions, players and scores."""

from __future__ import annotations

from environments.base import Environment, Split
from environments.checker import check_environment
from environments.datasets.locomo import LoCoMo
from environments.datasets.longmemeval import LongMemEval
from environments.datasets.synthetic import Synthetic
from environments.errors import EnvironmentFault
from environments.play.answer_cache import AnswerCache, with_answer_cache
from environments.play.group_scoring import GroupScore, score_group
from environments.play.rollout import MemoryAgent, answer_probes, play, replay_session
from environments.play.snapshots import (
    Place,
    SnapshotStore,
    snapshot_from_json,
    snapshot_to_json,
    trace_digest,
)
from environments.records import (
    Episode,
    Probe,
    ProbeAnswer,
    ProbeScore,
    Score,
    SessionTrace,
    Trajectory,
)
from environments.rewards.questions import (
    SessionCredit,
    SessionQuestions,
    episode_questions,
    questions_for,
    session_credits,
)
from environments.rewards.scoring import Scoring
from environments.rewards.terms import Outcome, Reward, Weighted, memory_r2_reward, outcome_of
from environments.views import select_probes, select_sessions, truncate
from memagent.core.long_work import rare_collections

__all__ = [
    "AnswerCache",
    "Environment",
    "EnvironmentFault",
    "Episode",
    "GroupScore",
    "LoCoMo",
    "LongMemEval",
    "MemoryAgent",
    "Outcome",
    "Place",
    "Probe",
    "ProbeAnswer",
    "ProbeScore",
    "Reward",
    "Score",
    "Scoring",
    "SessionCredit",
    "SessionQuestions",
    "SessionTrace",
    "SnapshotStore",
    "Split",
    "Synthetic",
    "Trajectory",
    "Weighted",
    "answer_probes",
    "check_environment",
    "episode_questions",
    "memory_r2_reward",
    "outcome_of",
    "play",
    "questions_for",
    "rare_collections",
    "replay_session",
    "score_group",
    "select_probes",
    "select_sessions",
    "session_credits",
    "snapshot_from_json",
    "snapshot_to_json",
    "trace_digest",
    "truncate",
    "with_answer_cache",
]
