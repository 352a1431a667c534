"""Fit the reader and write its weights, or measure weights on data that no fit reads.

OMP_NUM_THREADS=1 python -m train.reader fit                # from the published encoder
OMP_NUM_THREADS=1 python -m train.reader fit --seed 1 --out /tmp/other.npz
OMP_NUM_THREADS=1 python -m train.reader measure --locomo ../shared/data/locomo
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from memagent.language.network import Network, Tokenizer
from memagent.language.reader import WEIGHTS_FILE, Reader, Thresholds, open_reader
from train.reader import measure
from train.reader.examples import Talk, read_talks
from train.reader.fit import FitPlan, fit, inputs
from train.reader.network import ReaderNetwork, file_arrays, pretrained, save_network

DATA = Path(__file__).parents[2] / "environments" / "dialogues" / "data"
DEVELOPMENT = (26, 30, 43)
LEAST_CHANGE = 0.9
"""Least probability of a change. Below it, changes in LoCoMo's development conversations
are more than three in 1,000 turns."""

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
    measuring.add_argument("--locomo", type=Path, help="folder of LoCoMo's conversations")
    measuring.add_argument("--conversations", type=int, nargs="*", default=DEVELOPMENT)
    for command in (fitting, measuring):
        command.add_argument("--data", type=Path, nargs="+", default=[DATA])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "fit":
        torch.manual_seed(options.seed)
        plan = FitPlan(seed=options.seed, passes=options.passes, rate=options.rate)
        fit_file(pretrained(), options.data, options.out, plan)
    else:
        reader = open_reader(options.weights)
        report(reader, read_talks(options.data, options.part), lines=options.lines)
        if options.locomo is not None:
            report_chat(reader, options.locomo, options.conversations)


def fit_file(network: ReaderNetwork, data: Sequence[Path], out: Path, plan: FitPlan) -> None:
    """Fit on the open batches, set the thresholds on the choice part, write the file."""
    began = perf_counter()
    talks = read_talks(data, "fit")
    fit(network, talks, plan, _say)
    arrays = file_arrays(network, inputs(talks[::_SHOWN_OF], Tokenizer(network.vocabulary)))
    thresholds = choose(Reader(Network(arrays), Thresholds()), read_talks(data, "choice"))
    save_network(out, arrays, thresholds)
    _say(f"{thresholds}, {open_reader(out).network.digest}, {perf_counter() - began:.0f} s")


def choose(reader: Reader, talks: Sequence[Talk]) -> Thresholds:
    """Return thresholds under which few statements that must stay are lost.

    At most 4 % of those of the talks; `LEAST_CHANGE` is a floor.
    """
    dialogues = measure.read_vectors(reader, [talk for talk in talks if not talk.is_chat])
    _, kept = measure.statement_shares(reader, dialogues)
    highest = sorted(kept, reverse=True)
    bar = highest[len(kept) // 25] + 0.001 if kept else 0.0
    return replace(reader.thresholds, change=round(min(max(bar, LEAST_CHANGE), 0.999), 3))


def report(reader: Reader, talks: Sequence[Talk], *, lines: bool) -> None:
    """Print the figures of talks, of all and by language."""
    for language in ("all", *sorted({talk.language for talk in talks})):
        own = [talk for talk in talks if language in ("all", talk.language)]
        dialogues = measure.read_vectors(reader, [talk for talk in own if not talk.is_chat])
        played = measure.play(reader, dialogues)
        _say(f"{language}: {len(dialogues)} dialogues, {len(own) - len(dialogues)} small talks")
        _say(f"  found {played.found} of {played.updates}, wrong {played.wrong} of {played.kept}")
        _say(f"  area {_rounded(measure.aurocs(measure.score_pairs(reader, dialogues)))}")
        _say(f"  turns {_rounded(measure.turn_scores(reader, own))}")
        _say(f"  questions {_rounded(measure.match_scores(reader, dialogues))}")
        if language == "all" and lines:
            _say("\n".join(f"  WRONG {line}" for line in played.faults))
            _say("\n".join(f"  MISSED {line}" for line in played.missed))


def report_chat(reader: Reader, folder: Path, conversations: Sequence[int]) -> None:
    """Print every change in conversations of LoCoMo."""
    turns = 0
    changes: list[measure.ChatChange] = []
    for number in conversations:
        said = measure.read_conversation(folder / f"conv-{number}.json")
        turns += len(said)
        changes += measure.chat_changes(reader, f"conv-{number}", said)
    _say(f"LoCoMo: {len(changes)} changes in {turns} turns")
    for change in changes:
        old, new = change.old, change.new
        _say(f"  {change.conversation} {change.relation} {change.probability:.3f}")
        _say(f"    {old.at:%Y-%m-%d} {old.speaker}: {old.text}")
        _say(f"    {new.at:%Y-%m-%d} {new.speaker}: {new.text}")


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(score, 3) for name, score in scores.items()}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
