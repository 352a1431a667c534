"""Model judges: whether an answer is right, asked twice, with a lenient and with a strict prompt.

The prompts are files with a version; their digests stand in the configuration and in
every report. A verdict is kept in the run's folder under (judge model, prompt digest,
question, gold answers, answer), so nothing is judged twice, and an answer that several
arms give is judged once. An abstention is wrong without a call; unanswerable questions
are not judged. The one rule above all: a call that fails, or a reply that cannot be
read, is no verdict. It is counted, enters no figure, is never kept, and is asked again
by the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, TextIO, get_args

from pydantic import ValidationError

from environments.errors import EnvironmentFault
from environments.records import ProbeScore, Score
from memagent.build import AgentSettings, build_model
from memagent.core.errors import MemAgentError, ModelError, boundary
from memagent.core.exchange import JsonSchema, Message, ModelRequest, Role, Sampling, StepRef, Usage
from memagent.core.records import Record, Text, content_id
from memagent.protocols import ChatModel

Strictness = Literal["lenient", "strict"]
"""The two prompts of a judge, by how strict they are."""
STRICTNESS: Final[tuple[Strictness, ...]] = get_args(Strictness)
FILE: Final = "verdicts.jsonl"
"""Name of the file of verdicts in a run's folder."""
SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["correct"],
    "properties": {"correct": {"type": "boolean"}},
}
STEADY: Final = Sampling(temperature=0.0)
"""The sampling of a judge unless the settings of its role say otherwise."""
_PROMPT_FILE = re.compile(
    r"\A---\nname: (\w+)\nversion: (\d+)\n---\n(.*?)\n=== user ===\n(.*)\Z", re.DOTALL
)
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, kw_only=True)
class JudgePrompt:
    """One prompt file; `digest` is the SHA-256 of its text as 64 hex digits."""

    name: str
    version: int
    system: str
    user: str
    digest: str

    def messages(self, probe: ProbeScore) -> tuple[Message, Message]:
        """Return the system message and the user message about one answer.

        Question, gold answers and answer stand there as JSON strings, so no text in them
        can pass for a part of the prompt.
        """
        parts = {"question": probe.question, "gold": probe.gold, "answer": probe.answer}
        user = _SLOT.sub(lambda slot: json.dumps(parts[slot[1]], ensure_ascii=False), self.user)
        return Message(role="system", content=self.system.strip()), Message(
            role="user", content=user.strip()
        )


@cache
def judge_prompt(strictness: Strictness) -> JudgePrompt:
    """Return the shipped prompt of a judge."""
    text = (files("environments.evaluation") / "prompts" / f"judge_{strictness}.md").read_text(
        encoding="utf-8"
    )
    match = _PROMPT_FILE.match(text.replace("\r\n", "\n"))
    if match is None:
        raise EnvironmentFault(
            f"the prompt judge_{strictness} has no header of name and version, or no user part"
        )
    return JudgePrompt(
        name=match[1],
        version=int(match[2]),
        system=match[3],
        user=match[4],
        digest=hashlib.sha256(match[0].encode()).hexdigest(),
    )


class JudgeConfig(Record):
    """A judge's model and prompts."""

    model: Text
    """litellm's name of the judge."""
    prompts: dict[Text, Text]
    """Digest of each prompt."""


def judge_config(model: str) -> JudgeConfig:
    """Return the configuration of a judge with the shipped prompts."""
    return JudgeConfig(
        model=model, prompts={name: judge_prompt(name).digest for name in STRICTNESS}
    )


class Verdict(Record):
    """A line of the file of verdicts."""

    key: Text
    prompt: Text
    question: Text
    gold: tuple[Text, ...]
    answer: Text
    correct: bool


class Judging(Record):
    """Counts of verdicts and calls, and the cost of the calls."""

    kept: int = 0
    """Verdicts that were there from an earlier run."""
    asked: int = 0
    """Calls made for this report."""
    failed: int = 0
    """Calls that gave no verdict."""
    reason: Text = ""
    """The reason of the first failure."""
    usage: Usage = Usage()


def build_judge(config: JudgeConfig, settings: AgentSettings | None) -> ChatModel:
    """Build the judge's model.

    The model's name is that of the configuration. Its key and address are those of the
    role `judge` in the settings, else those of the settings' model. Raises
    `EnvironmentFault` when the configuration names other prompts than are shipped, and
    `ConfigError` as `build_model` does.
    """
    if config != judge_config(config.model):
        raise EnvironmentFault(
            "the judge's prompts are not those of the configuration; use the version that it "
            "names, or another --out"
        )
    settings = settings or AgentSettings()
    base = settings.roles.get(Role.JUDGE, settings.model)
    model = build_model(config.model, settings.model_copy(update={"model": base, "roles": {}}))
    if model is None:
        raise EnvironmentFault("a judge needs a model's name")
    return model


async def judge_scores(
    scores: Mapping[str, Sequence[Score]],
    *,
    config: JudgeConfig,
    model: ChatModel,
    folder: Path,
    sampling: Sampling = STEADY,
    parallel: int = 8,
) -> tuple[dict[str, list[Score]], Judging]:
    """Return every arm's scores with verdicts, and the cost of judging.

    At most `parallel` calls are made at once. Verdicts are written as they come, so that a
    broken run loses none.
    """
    path = folder / FILE
    known = read_verdicts(path)
    pairs: dict[str, tuple[Strictness, ProbeScore]] = {}
    for strictness, probe in _to_judge(scores):
        pairs.setdefault(_key(config, strictness, probe), (strictness, probe))
    missing = {key: pair for key, pair in pairs.items() if key not in known}
    calls = _Calls(model=model, sampling=sampling, known=known, slots=asyncio.Semaphore(parallel))
    if missing:
        with path.open("a", encoding="utf-8") as stream:
            await asyncio.gather(  # adds to `known`
                *(calls.judge(key, *pair, stream) for key, pair in missing.items())
            )
    judging = Judging(
        kept=len(pairs) - len(missing),
        asked=len(missing),
        failed=len(calls.failures),
        reason=calls.failures[0] if calls.failures else "",
        usage=calls.usage,
    )
    judged = {
        arm: [
            score.model_copy(
                update={
                    "probes": tuple(_with_verdicts(probe, config, known) for probe in score.probes)
                }
            )
            for score in arm_scores
        ]
        for arm, arm_scores in scores.items()
    }
    return judged, judging


def read_verdicts(path: Path) -> dict[str, bool]:
    """Return the verdicts of a file by key; {} for a missing file.

    Repairs the file: a last line that was cut off is no verdict, and gets an end, so that
    the next verdict begins a line of its own.
    """
    verdicts: dict[str, bool] = {}
    if path.exists():
        text = path.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as stream:
                stream.write("\n")
        for line in text.split("\n"):
            try:
                verdict = Verdict.model_validate_json(line)
            except ValidationError:
                continue
            verdicts[verdict.key] = verdict.correct
    return verdicts


def read_reply(text: str) -> bool | None:
    """Return the verdict in a judge's reply: its last JSON object's `correct`.

    None when there is none.
    """
    for document in reversed(re.findall(r"\{[^{}]*\}", text)):
        try:
            correct: object = json.loads(document).get("correct")
        except ValueError:
            continue
        return correct if isinstance(correct, bool) else None
    return None


@dataclass(kw_only=True)
class _Calls:
    """The calls of one run: their verdicts (in `known`), their cost, why some failed."""

    model: ChatModel
    sampling: Sampling
    known: dict[str, bool]
    slots: asyncio.Semaphore
    usage: Usage = Usage()
    failures: list[str] = field(default_factory=list[str])

    async def judge(
        self, key: str, strictness: Strictness, probe: ProbeScore, stream: TextIO
    ) -> None:
        """Ask for one verdict; add it to `known` and to the file, or note the failure."""
        prompt = judge_prompt(strictness)
        request = ModelRequest(
            role=Role.JUDGE,
            step=StepRef(question_id=probe.probe_id),
            messages=prompt.messages(probe),
            schema=SCHEMA,
            sampling=self.sampling,
            prompt_digest=prompt.digest,
        )
        try:
            async with self.slots:
                with boundary(ModelError, "judge"):
                    response = await self.model.complete(request)
        except MemAgentError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        self.usage += response.usage
        correct = read_reply(response.text)
        if correct is None:
            self.failures.append(f"the judge's reply is no verdict: {response.text[:80]!r}")
            return
        self.known[key] = correct
        verdict = Verdict(
            key=key,
            prompt=prompt.name,
            question=probe.question,
            gold=probe.gold,
            answer=probe.answer,
            correct=correct,
        )
        stream.write(verdict.model_dump_json() + "\n")
        stream.flush()


def _to_judge(scores: Mapping[str, Sequence[Score]]) -> Iterator[tuple[Strictness, ProbeScore]]:
    """Yield each answer that a judge is asked about, once for each prompt.

    Abstentions and answers to unanswerable questions are left out.
    """
    for arm_scores in scores.values():
        for score in arm_scores:
            for probe in score.probes:
                if _applies(probe) and not probe.abstained:
                    for strictness in STRICTNESS:
                        yield strictness, probe


def _applies(probe: ProbeScore) -> bool:
    return probe.failure is None and not probe.unanswerable and bool(probe.gold)


def _with_verdicts(probe: ProbeScore, config: JudgeConfig, known: Mapping[str, bool]) -> ProbeScore:
    if not _applies(probe):
        return probe
    judged = {
        name: False if probe.abstained else known.get(_key(config, name, probe))
        for name in STRICTNESS
    }
    return probe.model_copy(update={"judged": judged})


def _key(config: JudgeConfig, strictness: Strictness, probe: ProbeScore) -> str:
    gold = json.dumps(probe.gold, ensure_ascii=False)
    return content_id(
        "verdict", config.model, config.prompts[strictness], probe.question, gold, probe.answer
    )
