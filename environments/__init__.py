"""Environments: multi-session episodes with questions, the players that run an agent through them, and the scores."""

from __future__ import annotations

from environments.answer_cache import AnswerCache, with_answer_cache
from environments.base import Environment, Split
from environments.checker import check_environment
from environments.collector import rare_collections
from environments.credit import SessionCredit, session_credits
from environments.errors import EnvironmentFault
from environments.group_scoring import GroupScore, score_group
from environments.locomo import LoCoMo
from environments.longmemeval import LongMemEval
from environments.questions import SessionQuestions, episode_questions, questions_for
from environments.records import Episode, Probe, ProbeAnswer, ProbeScore, Score, SessionTrace, Trajectory
from environments.rewards import Outcome, Reward, Weighted, memory_r2_reward, outcome_of
from environments.rollout import MemoryAgent, answer_probes, play, replay_session
from environments.scoring import Scoring
from environments.snapshot_json import snapshot_from_json, snapshot_to_json, trace_digest
from environments.snapshots import Place, SnapshotStore
from environments.synthetic import Synthetic
from environments.views import select_probes, select_sessions, truncate

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
