"""Fit the network of the design `learned` from scratch and write its weights.

    OMP_NUM_THREADS=1 python -m train.learned                  # the shipped weights again
    OMP_NUM_THREADS=1 python -m train.learned --seed 1 --out /tmp/other.npz

The encoder is kept beside the weights (`.encoder.npz`) until the run is over, so that a
run that was stopped goes on with the pairs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter

import torch

from memagent.designs.parts.learned.network import WEIGHTS_FILE, open_network
from memagent.designs.parts.learned.reading import Reader
from train.learned.batches import turn_row
from train.learned.checks import head_scores
from train.learned.dialogues import LabelledEpisode, labelled_episodes
from train.learned.fit import FitPlan, fit_encoder
from train.learned.network import Encoder, PairScorer, load_encoder, save_weights
from train.learned.pairs import PairCase, choice_accuracy, fit_pairs, pair_cases

_CHECKED = 25
"""Episodes of each check."""
_FAR = 1_000_000
"""Added to the seed for episodes that no fit uses."""


def main() -> None:
    """Run the fit that the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=WEIGHTS_FILE)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=FitPlan.steps)
    parser.add_argument("--pairs", type=int, default=400, help="episodes for the pair scorer")
    options = parser.parse_args()
    began = perf_counter()
    encoder, scorer = fit_weights(
        options.out, steps=options.steps, pairs=options.pairs, seed=options.seed, say=_say
    )
    reader = Reader(open_network(options.out))
    _say(f"weights {open_network(options.out).digest} after {perf_counter() - began:.0f} s")
    for held_out in (False, True):
        name = "relations held out" if held_out else "relations of training"
        far = list(labelled_episodes(_CHECKED, seed=options.seed + 2 * _FAR, held_out=held_out))
        rows = [turn_row(turn) for episode in far for turn in episode.turns if turn.text.strip()]
        scores = head_scores(encoder, rows)
        choices = choice_accuracy(scorer, _cases(reader, far, seed=options.seed + 2 * _FAR))
        _say(f"{name}: {_rounded(scores)}; choices: {_rounded(choices)}")


def fit_weights(
    out: Path, *, steps: int, pairs: int, seed: int, say: Callable[[str], None]
) -> tuple[Encoder, PairScorer]:
    """Fit both networks and write their weights; equal arguments give equal bytes."""
    torch.set_num_threads(1)
    kept = out.with_suffix(".encoder.npz")
    if not kept.exists():
        save_weights(kept, fit_encoder(FitPlan(steps=steps, seed=seed), say), None)
        say("the encoder is fitted")
    encoder, reader = load_encoder(kept), Reader(open_network(kept))
    heard = labelled_episodes(pairs, seed=seed + _FAR)
    scorer = fit_pairs(_cases(reader, heard, seed=seed + _FAR), seed=seed)
    save_weights(out, encoder, scorer)
    kept.unlink()
    return encoder, scorer


def _cases(reader: Reader, episodes: Iterable[LabelledEpisode], *, seed: int) -> list[PairCase]:
    rng = random.Random(seed)
    return [case for episode in episodes for case in pair_cases(reader, episode, rng)]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(score, 3) for name, score in scores.items()}


if __name__ == "__main__":
    main()
