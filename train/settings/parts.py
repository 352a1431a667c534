"""The settings of a training run, as records: one part for each table of its file.

`train.settings.run` reads and checks them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from train.settings.former import current


class Part(BaseModel):
    """Base of the parts: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LoRASettings(Part):
    """Low-rank adapters instead of all weights."""

    r: Annotated[int, Field(ge=1)] = 16
    """Rank."""
    alpha: int = 32
    """Scale, by the rank."""
    targets: str | tuple[str, ...] = "all-linear"
    """Layers that are adapted, as PEFT names them."""
    per_role: bool | Literal["calls"] = False
    """One adapter for the memory manager and one for the answer agent, instead of one for
    both; with `calls` the manager's two calls have one each as well.
    """


class ModelPart(Part):
    """The model that is trained."""

    path: str | None = None
    """Folder or hub id; None makes a small model from scratch."""
    size: Literal["decisions", "200k", "500k", "1m", "4m", "30m", "60m"] = "500k"
    """Parameters of a model from scratch, about; `decisions` is the policy of
    `memagent.designs.learned:POLICY`, which writes no text.
    """
    context_tokens: Annotated[int, Field(ge=64)] = 1_024
    """Longest prompt with its reply, of a model from scratch; also where demonstrations
    are cut.
    """
    lora: LoRASettings | None = None
    """Train adapters and leave the weights alone."""


class EnvironmentPart(Part):
    """The environment of the policy. Fields besides `kind` go to it."""

    kind: Annotated[str, Field(min_length=1)] = "synthetic"
    """Generated conversations, LoCoMo, or another environment: a name of
    memagent.environments (`needle`, `sort` ...), a set of tasks that are acted in
    (`tiny_shop` ...), or a path `package.module:attribute`.
    """
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Other environments: their own arguments, as in docs/environments.md."""
    level: Annotated[str, Field(min_length=1)] = "tiny"
    """Synthetic: tiny, standard, rich, or the folder of your own; see docs/worlds.md."""
    path: str | None = None
    """LoCoMo: the user's own copy."""
    split_by: Literal["memory_r1", "memory_r2"] | None = None
    """LoCoMo: whose split by conversation; memory_r2 when left out."""
    seed: int = 0
    """Of the generated conversations."""
    episodes: Annotated[int, Field(ge=1)] = 200
    """Training episodes; synthetic ones are made as needed."""
    turns: int | None = None
    """Synthetic: turns a session at least; this and the next eight as in
    docs/environments.md, the level's own when left out.
    """
    facts: float | None = None
    """Synthetic: true things told in a session, on average."""
    overwrite: float | None = None
    """Synthetic: share of them that revise something."""
    interference: float | None = None
    """Synthetic: repetitions and revisions of old facts in later sessions."""
    distractors: float | None = None
    """Synthetic: tellings per fact that change nothing."""
    friends: int | None = None
    """Synthetic: people a speaker tells of at most."""
    only: tuple[str, ...] | None = None
    """Synthetic: names of the relations to use; all of the level's when left out."""
    probes: int | None = None
    """Synthetic: questions an episode at most."""
    asks: tuple[str, ...] = ()
    """Only questions of these kinds: now, who, count ... of a synthetic world, categories
    1 to 5 of LoCoMo; all when empty.
    """


class AgentPart(Part):
    """The agent that is played."""

    design: str = "memory_r2_brief"
    """The memory design; a name of memagent.designs."""
    embedder: str = "static"
    """Embedder that search uses."""
    listening: Literal["policy", "oracle"] = "policy"
    """Takes down facts: the policy, or the oracle of a synthetic world, so that only the
    use of facts is learned and judged.
    """
    answering: Literal["reader", "facts", "policy"] = "reader"
    """Answers when memories are scored: the rule-based reader of notes of a synthetic world,
    the one of statements in any words (`facts`), or the policy itself, greedily.
    """
    reader: str | None = None
    """Frozen model that answers instead of the policy when memories are scored: litellm's
    name, such as `hosted_vllm/Qwen/Qwen2.5-7B-Instruct`, or `hf:` and a folder or hub id.
    """
    acting: Literal["policy", "player"] = "policy"
    """Acts in tasks: the policy, or the scripted player of the set, so that the policy's
    edits of the workspace alone are learned and judged.
    """
    workspace_words: Annotated[int, Field(ge=1)] | None = None
    """Tasks: words of the workspace above which the design edits it; the design's own when
    left out.
    """


class WarmUpPart(Part):
    """Demonstrations before any comparison."""

    episodes: Annotated[int, Field(ge=1)] = 100
    """Episodes of a synthetic world, or tasks, that an oracle plays."""
    sessions: Annotated[int, Field(ge=1)] = 8
    """Sessions of each."""
    answers: bool = False
    """Demonstrate answers too when no answerer is trained; when one is, they always are."""
    noise: Annotated[float, Field(ge=0, le=1)] = 0.15
    """Share of replies spoiled on the way, so that demonstrations also repair a memory
    that has gone wrong.
    """
    guess: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the memory manager's ops that are demonstrated at random, so that training
    is left to find out when each op is right.
    """
    guess_answers: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of answers that are demonstrated from any memory shown, so that training is
    left to find out which memory to believe.
    """
    epochs: Annotated[float, Field(gt=0)] = 3.0
    """Passes over the demonstrations."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Highest; it follows a cosine."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Muon learns a model from scratch in far fewer steps; AdamW is for weights that have
    learned already.
    """
    batch_rows: Annotated[int, Field(ge=1)] = 32
    """Demonstrations a step."""


class ValidationPart(Part):
    """The search for the best checkpoint."""

    every: Annotated[int, Field(ge=1)] = 10
    """Optimizer steps."""
    episodes: Annotated[int, Field(ge=1)] = 8
    """Episodes played each time, greedily."""
    sessions: Annotated[int, Field(ge=1)] | None = None
    """Sessions of these episodes; those of the stage when left out."""
    measure: Literal[
        "f1", "f1_memory_r2", "exact", "reward", "overwritten", "facts", "facts_as_of", "success"
    ] = "f1"
    """Figure that makes a checkpoint the best; see `train.run.evaluation`."""
    test_episodes: Annotated[int, Field(ge=0)] = 16
    """Held-out episodes played at the end with every stage's best; 0 for none."""
    test_last: bool = False
    """Whether the last model of each stage is kept and tested beside its best."""
    test_split: Literal["test", "validation"] = "test"
    """Source of held-out episodes: `test` has names and surface forms of its own in
    synthetic worlds, `validation` those of training, and then the episodes after those
    of validation are taken.
    """
    test_sessions: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Lengths of the test in sessions, besides those of the stages."""


class Gate(Part):
    """Conditions under which a stage ends before its steps are used up; all must hold."""

    f1: float | None = None
    """At least this mean F1."""
    lost: float | None = None
    """At most this share of gold evidence that no note cites (M-Fail)."""

    def passed(self, figures: dict[str, float]) -> bool:
        """Tell whether figures of a validation pass; a gate without conditions never does."""
        if self.f1 is None and self.lost is None:
            return False
        return (self.f1 is None or figures.get("f1", 0.0) >= self.f1) and (
            self.lost is None or figures.get("lost", 1.0) <= self.lost
        )


class Stage(Part):
    """One stage of the curriculum."""

    sessions: Annotated[int, Field(ge=1)] = 8
    """Sessions of an episode."""
    steps: Annotated[int, Field(ge=1)] = 100
    """Optimizer steps at most."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Generated tokens at most, for comparisons at equal cost."""
    gate: Gate = Gate()
    """Conditions on validation under which the stage ends early."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Validations without a new best after which the stage ends."""
    roles: (
        Literal["manager", "extractor", "decider", "answerer", "both", "readers", "all"] | None
    ) = None
    """Roles trained in this stage, for alternating, as in `[trainer]`; None for the
    trainer's own setting.
    """


class RunSettings(Part):
    """One run."""

    seed: int = 0
    """Of weights, draws and sampling."""
    model: ModelPart = ModelPart()
    environment: EnvironmentPart = EnvironmentPart()
    agent: AgentPart = AgentPart()
    warmup: WarmUpPart | None = None
    trainer: dict[str, Any] = Field(default_factory=dict[str, Any])
    stage: Annotated[tuple[Stage, ...], Field(min_length=1)] = (Stage(),)
    validation: ValidationPart = ValidationPart()
    folder: str = "runs/logo"
    """Folder of all that the run leaves."""

    def trainer_of(self, stage: Stage) -> dict[str, Any]:
        """Return the values of `[trainer]` as a stage changes them."""
        return current(self.trainer) | ({"roles": stage.roles} if stage.roles else {})
