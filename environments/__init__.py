"""Environments: multi-session episodes with questions, the players that run an agent through them, and the scores."""

from __future__ import annotations

from environments.base import Environment, Split
from environments.checker import check_environment
from environments.errors import EnvironmentFault
from environments.locomo import LoCoMo
from environments.longmemeval import LongMemEval
from environments.records import Episode, Probe, ProbeAnswer, ProbeScore, Score, SessionTrace, Trajectory
from environments.rollout import MemoryAgent, answer_probes, play, replay_session
from environments.scoring import Scoring
from environments.views import select_probes, select_sessions, truncate

__all__ = [
    "Environment",
    "EnvironmentFault",
    "Episode",
    "LoCoMo",
    "LongMemEval",
    "MemoryAgent",
    "Probe",
    "ProbeAnswer",
    "ProbeScore",
    "Score",
    "Scoring",
    "SessionTrace",
    "Split",
    "Trajectory",
    "answer_probes",
    "check_environment",
    "play",
    "replay_session",
    "select_probes",
    "select_sessions",
    "truncate",
]
