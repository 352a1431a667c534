"""Fit the reader and write its weights, or measure weights on data that no fit reads.

OMP_NUM_THREADS=1 python -m train.reader fit                # from the published encoder
OMP_NUM_THREADS=1 python -m train.reader fit --seed 1 --out /tmp/other.npz
OMP_NUM_THREADS=1 python -m train.reader decide             # thresholds and deciding alone
OMP_NUM_THREADS=1 python -m train.reader measure
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from zlib import crc32

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from memagent.language.network import Array, Network, Tokenizer, read_arrays
from memagent.language.reader import WEIGHTS_FILE, Reader, Thresholds, open_reader
from train.reader import measure
from train.reader.examples import Talk, read_talks
from train.reader.fit import FitPlan, fit, inputs
from train.reader.network import ReaderNetwork, file_arrays, pretrained, save_network

DATA = Path(__file__).parents[2] / "environments" / "dialogues" / "data"
MOST_LOST = 0.02
"""Share of the statements that must stay which may be lost."""

_SHOWN_OF = 16
"""One of so many talks shows the encoder's matrices what they are given; see `quantise`."""


def main() -> None:
    """Run the command that the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fitting = commands.add_parser("fit", help="fit and write a file of weights")
    fitting.add_argument("--out", type=Path, default=WEIGHTS_FILE)
    fitting.add_argument("--seed", type=int, default=FitPlan.seed)
    fitting.add_argument("--passes", type=int, default=FitPlan.passes)
    fitting.add_argument("--rate", type=float, default=FitPlan.rate)
    measuring = commands.add_parser("measure", help="print the figures of a file of weights")
    measuring.add_argument("--weights", type=Path, default=WEIGHTS_FILE)
    measuring.add_argument("--part", choices=("choice", "held out"), default="held out")
    measuring.add_argument("--lines", action="store_true", help="print wrong and missed changes")
    deciding = commands.add_parser("decide", help="fit anew by what a change is decided")
    deciding.add_argument("--weights", type=Path, default=WEIGHTS_FILE)
    for command in (fitting, deciding, measuring):
        command.add_argument("--data", type=Path, nargs="+", default=[DATA])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "fit":
        torch.manual_seed(options.seed)
        plan = FitPlan(seed=options.seed, passes=options.passes, rate=options.rate)
        fit_file(pretrained(), options.data, options.out, plan)
    elif options.command == "decide":
        thresholds = choose(open_reader(options.weights), options.data)
        arrays = read_arrays(options.weights)
        del arrays["thresholds"]
        save_network(options.weights, arrays, thresholds)
        _say(f"{thresholds}, {Network(read_arrays(options.weights)).digest}")
    else:
        reader = open_reader(options.weights)
        report(reader, read_talks(options.data, options.part), lines=options.lines)


def fit_file(network: ReaderNetwork, data: Sequence[Path], out: Path, plan: FitPlan) -> None:
    """Fit on the open batches, set the thresholds on the choice part, write the file."""
    began = perf_counter()
    talks = read_talks(data, "fit")
    fit(network, talks, plan, _say)
    arrays = file_arrays(network, inputs(talks[::_SHOWN_OF], Tokenizer(network.vocabulary)))
    thresholds = choose(Reader(Network(arrays), Thresholds()), data)
    save_network(out, arrays, thresholds)
    _say(f"{thresholds}, {open_reader(out).network.digest}, {perf_counter() - began:.0f} s")


def choose(reader: Reader, data: Sequence[Path]) -> Thresholds:
    """Return thresholds with the weights of a change, from talks that the network has not read.

    The choice part counts twice. An eighth of the batches at a time is decided by weights
    of the others. The threshold is the lowest by which at most `MOST_LOST` of the
    statements of the choice part that must stay are lost.
    """
    choice = read_talks(data, "choice")
    made = measure.decisions(reader, [*choice, *read_talks(data, "later")])
    known = {talk.id for talk in choice}
    numbers = np.array([own.numbers for own in made])
    ends = np.array([own.ends for own in made])
    shares = np.where([own.talk in known for own in made], 2.0, 1.0)
    parts = np.array([crc32(own.talk.rpartition("-")[0].encode()) % 8 for own in made])
    scores = np.zeros(len(made))
    for part in range(8):
        rest = parts != part
        weights = logistic(numbers[rest], ends[rest], shares[rest])
        scores[~rest] = 1 / (1 + np.exp(-numbers[~rest] @ weights))
    lost: dict[tuple[str, int], float] = {}
    for own, score in zip(made, scores.tolist(), strict=True):
        if own.keeps and own.talk in known:
            lost[own.talk, own.old] = max(lost.get((own.talk, own.old), 0.0), score)
    most = int(MOST_LOST * sum(len(talk.lasting_turns()) for talk in choice))
    bar = sorted(lost.values(), reverse=True)[most] + 0.001
    return replace(
        reader.thresholds,
        change=round(min(bar, 0.999), 3),
        weights=tuple(logistic(numbers, ends, shares).tolist()),
    )


def logistic(numbers: Array, ends: Array, shares: Array) -> Array:
    """Return the weights of numbers (N, F) whose first column is a constant."""
    means, spread = numbers.mean(axis=0), numbers.std(axis=0)
    means[0], spread[spread == 0] = 0.0, 1.0
    model = LogisticRegression(C=0.1, max_iter=2_000)
    model.fit((numbers - means) / spread, ends, sample_weight=shares)
    weights = model.coef_[0] / spread
    weights[0] += float(np.ravel(model.intercept_)[0]) - float(weights @ means)
    return weights


def report(reader: Reader, talks: Sequence[Talk], *, lines: bool) -> None:
    """Print the figures of talks, of all and by language."""
    for language in ("all", *sorted({talk.language for talk in talks})):
        own = [talk for talk in talks if language in ("all", talk.language)]
        dialogues = measure.read_vectors(reader, [talk for talk in own if not talk.is_chat])
        played = measure.play(reader, dialogues)
        _say(f"{language}: {len(dialogues)} dialogues, {len(own) - len(dialogues)} small talks")
        _say(f"  found {played.found} of {played.updates}, wrong {played.wrong} of {played.kept}")
        told = measure.turn_scores(measure.read_vectors(reader, own))
        _say(f"  turns { {name: round(share, 3) for name, share in told.items()} }")
        if language == "all" and lines:
            _say("\n".join(f"  WRONG {line}" for line in played.faults))
            _say("\n".join(f"  MISSED {line}" for line in played.missed))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
