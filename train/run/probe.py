"""A probe: what each credit knows about the gradient that it stands for, at one policy.

Independent episodes are played and credited in every way at once. Each credit gives a
gradient an episode. Their mean is the signal and their spread the noise, and the cosine
to the gradient of the measure says whether the signal points where it should. Minutes of
this tell credits apart that a hundred training runs do not.

    tokens  generated an episode; those of reruns only where they are used
    SNR     |mean gradient|^2 / total variance of one episode's gradient, a 1,000 tokens
    cosine  between the mean gradients of a credit and of the measure, at the end and as
            of each session

The measure's gradient is the score function with returns to go and the mean of the
other rollouts as a baseline. All three figures take products of *different* episodes
only, so noise neither raises the signal nor lowers the cosine. Intervals are jackknives
over episodes. The surprise: a cosine has none where a mean gradient is lost in noise.

Shapes: E episodes, D numbers of a gradient, R rows, K advantages of a row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from environments.evaluation.report_page import bar_chart, figures, report_page
from environments.records import Episode
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelResponse
from train.credit.advantages import leave_one_out, logo_advantages
from train.credit.groups import CreditGroup, Sampled
from train.credit.rows import build_rows, rows_of
from train.rollouts.collect import RolloutGroup
from train.rollouts.experience import GroupBatch
from train.run.models import Say, first_model
from train.run.plans import TruthOf, facts_right
from train.run.runs import task_of, trainer_of
from train.run.task import TrainingTask
from train.run.trainer import LoGoGRPOTrainer
from train.run.validation import quiet
from train.settings.run import RunSettings, Stage
from train.sync import run_sync

CREDITS = ("terminal", "session", "asof", "gain")
MEASURES = ("end", "as of")
MIXES: Mapping[str, Mapping[str, float]] = {
    **{name: {name: 1.0} for name in (*CREDITS, "local")},
    "terminal + local": {"terminal": 1.0, "local": 1.0},
    "session + local": {"session": 1.0, "local": 1.0},
    "gain + local": {"gain": 1.0, "local": 1.0},
    "gain + .3 terminal": {"gain": 1.0, "terminal": 0.3},
}
"""What is compared: weights of branches by the name of the mix."""
_WIDE = 1 << 18
"""Weights above which gradients are kept as sketches."""
_SKETCH = 1 << 16
_ROWS = 64
"""Rows of a forward pass."""


@dataclass(frozen=True, kw_only=True)
class Prober:
    """One policy whose episodes are credited in every way."""

    trainer: LoGoGRPOTrainer
    truth: TruthOf | None

    def probed(self, episode: Episode, *, number: int) -> dict[str, Any]:
        """Play one episode and return its gradients (D,) by name, tokens and shares.

        Experience of another kind than conversations brings its own `probed`, which gives
        what `_played` does.
        """
        experience: Any = self.trainer.experience
        self.trainer.policy.version = number
        play = getattr(experience, "probed", self._played)
        groups, said, whole, returns = run_sync(play(episode, number))
        traces = {key: reply.tokens for key, reply in said.items() if reply.tokens is not None}
        sampled = Sampled(traces=traces)
        credit = logo_advantages(
            [replace(group, sampled=sampled) for group in groups],
            estimator=experience.plan.estimator,
            tolerance=experience.plan.flat_tolerance,
        )
        advantages: dict[str, Mapping[str, float]] = {**credit.by_branch, **returns}
        spent = {key: len(trace.completion_ids) for key, trace in traces.items()}
        return {
            "gradients": self._gradients(traces, advantages),
            "whole": sum(spent[key] for key in whole),
            "every": sum(spent.values()),
            "shares": {
                name: _shares(groups, name, experience.plan.flat_tolerance)
                for name in credit.by_branch
            },
        }

    async def _played(
        self, episode: Episode, number: int
    ) -> tuple[Sequence[CreditGroup], dict[str, ModelResponse], list[str], Any]:
        """Collect and score one episode of conversations.

        Return its groups, its replies by id, the ids of those outside of reruns, and the
        measure's advantages.
        """
        experience: Any = self.trainer.experience
        rollouts = await experience.collector.collect([episode], step=number)
        comparisons = await experience.score(rollouts)
        batch = GroupBatch.of(rollouts, comparisons, experience.plan.roles)
        said = {key: call.response for key, call in batch.calls.items()}
        whole = [call.response.id for run in rollouts[0].rollouts for call in run.calls]
        return batch.all, said, whole, self._returns(rollouts[0], batch.all)

    def _returns(
        self, group: RolloutGroup, groups: Sequence[CreditGroup]
    ) -> dict[str, dict[str, float]]:
        """Return the measure's advantages of each response: at the end, and as of sessions."""
        sessions = group.episode.sessions
        whole = [run for run in group.rollouts if run.failed == 0]
        values = np.zeros((len(whole), len(sessions)))
        for place in range(len(sessions)):
            values[:, place] = self._values(group, groups, place)
        togo = np.cumsum(values[:, ::-1], axis=1)[:, ::-1] / len(sessions)
        found: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
        for place, session in enumerate(sessions):
            earned = {"end": values[:, -1], "as of": togo[:, place]}
            for name, returns in earned.items():
                for run, advantage in zip(whole, leave_one_out(returns.tolist()), strict=True):
                    for call in run.calls_of(session.id):
                        found[name][call.response.id] = advantage
        return found

    def _values(
        self, group: RolloutGroup, groups: Sequence[CreditGroup], place: int
    ) -> Sequence[float]:
        """Return what the measure gives each whole rollout right after a session.

        It is the share of a generated world's facts, or else the reward.
        """
        whole = [run for run in group.rollouts if run.failed == 0]
        if self.truth is not None:
            episode = group.episode
            held = self.truth(
                episode.model_copy(update={"sessions": episode.sessions[: place + 1]})
            )
            traces = [run.trajectory.traces[place] for run in whole]
            return [facts_right(trace.after, held) or 0.0 for trace in traces]
        for compared in groups:
            if compared.key.branch == "asof" and compared.key.session == place:
                rewards = [member.reward or 0.0 for member in compared.members]
                return [
                    reward
                    for reward, run in zip(rewards, group.rollouts, strict=True)
                    if run.failed == 0
                ]
        return [0.0] * len(whole)

    def _gradients(
        self, traces: Mapping[str, Any], advantages: Mapping[str, Mapping[str, float]]
    ) -> dict[str, np.ndarray]:
        """Return by name the gradient (D,) of the advantages' sum of log-probabilities.

        Credits take each row's mean over tokens, as the trainer does; measures the sum.
        """
        trainer, names = self.trainer, list(advantages)
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        tokenizer: Any = trainer.processing_class
        weights = [each for each in model.parameters() if each.requires_grad]
        size = sum(each.numel() for each in weights)
        sums = [torch.zeros(size if size <= _WIDE else _SKETCH) for _ in names]
        ids = sorted({key for some in advantages.values() for key, value in some.items() if value})
        for first in range(0, len(ids), _ROWS):
            chosen = ids[first : first + _ROWS]
            rows = rows_of({key: traces[key] for key in chosen}, dict.fromkeys(chosen, 1.0))
            inputs = build_rows(rows, size=len(rows), pad_id=tokenizer.pad_token_id)
            device = trainer.accelerator.device
            logps, *_ = trainer._get_per_token_logps_and_entropies(  # noqa: SLF001
                model,
                torch.cat((inputs.prompt_ids, inputs.completion_ids), dim=1).to(device),
                torch.cat((inputs.prompt_mask, inputs.completion_mask), dim=1).to(device),
                inputs.completion_ids.size(1),
            )
            counted = inputs.completion_mask.to(device)
            total = (logps * counted).sum(dim=1)
            for place, name in enumerate(names):
                told = torch.tensor([advantages[name].get(key, 0.0) for key in chosen])
                scale = 1.0 if name in MEASURES else 1.0 / counted.sum(dim=1)
                value = (told.to(device) * total * scale).sum()
                parts = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
                sums[place] += _flat(parts, weights)
        return {name: value.numpy() for name, value in zip(names, sums, strict=True)}


def _shares(groups: Sequence[CreditGroup], branch: str, tolerance: float) -> tuple[int, int, int]:
    """Return the groups of a branch: all, those without two rewards, those that are flat."""
    spans = [
        max(group.rewards_G) - min(group.rewards_G) if len(group.rewards_G) > 1 else None
        for group in groups
        if group.key.branch == branch
    ]
    dead = sum(span is not None and span <= tolerance for span in spans)
    return len(spans), spans.count(None), dead


def _flat(parts: Sequence[Any], weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a gradient as one row of numbers, sketched by random signs if it is long."""
    flat = torch.cat(
        [
            (torch.zeros_like(weight) if part is None else part).detach().float().cpu().flatten()
            for part, weight in zip(parts, weights, strict=True)
        ]
    )
    if len(flat) <= _WIDE:
        return flat
    draws = torch.Generator().manual_seed(0)
    places = torch.randint(_SKETCH, (len(flat),), generator=draws)
    signs = torch.randint(2, (len(flat),), generator=draws) * 2 - 1
    return torch.zeros(_SKETCH).index_add_(0, places, flat * signs)


# -- figures ---------------------------------------------------------------------------


def jackknife(figure: Callable[[np.ndarray], float], episodes: int) -> tuple[float, float]:
    """Return a figure over all episodes and its jackknife standard error.

    `figure` takes the places of the episodes that count.
    """
    every = np.arange(episodes)
    parts = np.array([figure(np.delete(every, place)) for place in every])
    spread = ((parts - parts.mean()) ** 2).sum() * (episodes - 1) / episodes
    return figure(every), float(spread**0.5)


def _cross(products: np.ndarray, kept: np.ndarray) -> float:
    """Return the mean product of different episodes."""
    part = products[np.ix_(kept, kept)]
    return float((part.sum() - np.trace(part)) / (len(kept) * (len(kept) - 1)))


def snr(gradients: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the figure of signal over noise of gradients (E, D)."""
    products = gradients @ gradients.T

    def figure(kept: np.ndarray) -> float:
        signal = _cross(products, kept)
        noise = float(np.diag(products)[kept].mean()) - signal
        return signal / noise if noise > 0 else 0.0

    return figure


def cosine(left: np.ndarray, right: np.ndarray) -> Callable[[np.ndarray], float]:
    """Return the figure of the cosine between the mean gradients of two (E, D)."""
    both, own, other = left @ right.T, left @ left.T, right @ right.T

    def figure(kept: np.ndarray) -> float:
        size = _cross(own, kept) * _cross(other, kept)
        return _cross(both, kept) / size**0.5 if min(size, _cross(own, kept)) > 0 else np.nan

    return figure


def table(folder: Path) -> list[dict[str, Any]]:
    """Return a row for each mix from the episodes probed in a folder."""
    files = sorted(folder.glob("[0-9]*.npz"))
    loaded = [dict(np.load(file)) for file in files]
    notes = [json.loads(str(each.pop("note"))) for each in loaded]
    names = sorted({name for each in loaded for name in each})
    size = len(next(iter(loaded[0].values())))
    stacked = {
        name: np.stack([each.get(name, np.zeros(size)) for each in loaded]).astype(float)
        for name in names
    }
    rows: list[dict[str, Any]] = []
    for mix, weights in MIXES.items():
        if not weights.keys() <= stacked.keys():
            continue
        gradients = np.sum([weight * stacked[name] for name, weight in weights.items()], axis=0)
        tokens = np.mean([each["every" if "local" in weights else "whole"] for each in notes])
        signal, error = jackknife(snr(gradients), len(files))
        row: dict[str, Any] = {"credit": mix, "episodes": len(files), "tokens": float(tokens)}
        row["snr"] = [signal * 1000 / tokens, error * 1000 / tokens]
        for name in MEASURES:
            row[name] = list(jackknife(cosine(gradients, stacked[name]), len(files)))
        counts = np.sum(
            [each["shares"].get(name, (0, 0, 0)) for each in notes for name in weights], axis=0
        )
        row["unscored"], row["dead"] = (float(n / max(1, counts[0])) for n in counts[1:])
        rows.append(row)
    return rows


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table for people, in Markdown; +- is 1.96 jackknife standard errors."""
    told = [
        [f"`{row['credit']}`", f"{row['episodes']}", f"{row['tokens']:.0f}"]
        + [f"{row[name][0]:.2f} +- {1.96 * row[name][1]:.2f}" for name in ("snr", *MEASURES)]
        + [f"{row[name]:.2f}" for name in ("dead", "unscored")]
        for row in rows
    ]
    return [
        "| credit | episodes | tokens | SNR | cosine at the end | cosine as of | dead | unscored |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(cells)} |" for cells in told),
    ]


def plot(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Return a page with the signal of each credit beside the strongest, and its cosines."""
    charts = {"snr": "SNR, of the strongest", "as of": "Cosine as of", "end": "Cosine at the end"}
    most = {"snr": max(row["snr"][0] for row in rows)}

    def figure(found: Sequence[float], scale: float) -> tuple[float, float, float] | None:
        ends = [(found[0] + sign * 1.96 * found[1]) / scale for sign in (0, -1, 1)]
        low, middle, high = sorted(min(1.0, max(0.0, end)) for end in ends)
        return (middle, low, high) if np.isfinite(ends).all() and scale > 0 else None

    drawn = [
        bar_chart(
            words,
            [(row["credit"], figure(row[name], most.get(name, 1.0)), False) for row in rows],
        )
        for name, words in charts.items()
    ]
    return report_page(title, "intervals are 1.96 jackknife standard errors", [figures(drawn)])


def run_probe(
    settings: RunSettings, *, episodes: int, sessions: int, policy: Path | None, say: Say
) -> dict[str, Any]:
    """Probe a policy over episodes, going on where an earlier probe stopped.

    `policy` is the folder of a saved model; None takes the run's start. Raises
    `ConfigError` when the folder holds another probe.
    """
    name = f"probe{sessions}" if policy is None else f"probe{sessions}-{policy.parent.name}"
    folder = Path(settings.folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = _probing(settings, episodes=episodes, sessions=sessions)
    note = json.dumps({"policy": str(policy), "settings": settings.model_dump(mode="json")})
    kept = folder / "probe.json"
    if kept.is_file() and _but_episodes(kept.read_text()) != _but_episodes(note):
        raise ConfigError(f"{folder} holds a probe with other settings; remove it")
    kept.write_text(note, encoding="utf-8")
    task = task_of(settings, sessions=sessions)
    if not isinstance(task, TrainingTask):
        raise ConfigError("probe: tasks that are acted in have one credit, by segments")
    first_model(settings, Path(settings.folder), say=say)
    trainer = trainer_of(settings, 0, task, source=policy)
    quiet(trainer)
    prober = Prober(trainer=trainer, truth=task.truth_of)
    for number, episode in enumerate(task.episodes("train", episodes)):
        file = folder / f"{number:05}.npz"
        if not file.is_file():
            found = prober.probed(episode, number=number)
            gradients = found.pop("gradients")
            part = file.with_suffix(".part.npz")
            np.savez(part, note=np.array(json.dumps(found)), **gradients)
            part.replace(file)
            say(f"probed {number + 1} of {episodes} episodes")
    rows = table(folder)
    say("\n".join(lines_of(rows)))
    (folder / "table.md").write_text("\n".join(lines_of(rows)) + "\n", encoding="utf-8")
    (folder / "plot.html").write_text(plot(rows, f"memagent-train: {name}"), encoding="utf-8")
    return {"folder": str(folder), "sessions": sessions, "credits": rows}


def _probing(settings: RunSettings, *, episodes: int, sessions: int) -> RunSettings:
    """Return the settings with every credit at once."""
    trainer = {**settings.trainer, "credit": dict.fromkeys(CREDITS, 1.0), "report_to": "none"}
    environment = settings.environment.model_copy(
        update={"episodes": max(episodes, settings.environment.episodes)}
    )
    return settings.model_copy(
        update={
            "trainer": trainer,
            "environment": environment,
            "stage": (Stage(sessions=sessions, steps=1, roles=settings.stage[0].roles),),
        }
    )


def _but_episodes(note: str) -> Any:
    values = json.loads(note)
    values["settings"]["environment"].pop("episodes")
    return values
