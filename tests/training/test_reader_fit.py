"""The fit of the reader: the split by file, equal bits, parity with numpy, what it learns."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from memagent.language.network import SCALE, Tokenizer, open_network, read_arrays, units
from memagent.language.reader import RELATIONS, WEIGHTS_FILE, Reader, Thresholds, open_reader
from train.reader import measure
from train.reader.examples import UNKNOWN, Part, Talk, read_talks
from train.reader.fit import FitPlan, fit, inputs
from train.reader.network import (
    ReaderNetwork,
    file_arrays,
    file_name,
    quantise,
    save_network,
    text_batch,
)

pytestmark = pytest.mark.torch

TOWNS = ("Rome", "Oslo", "Lima", "Kyoto", "Porto", "Graz")
SPEAKERS = ("Ana", "Bo", "Carla", "Dov", "Edda", "Finn")
CHAT = """# chat: two friends, English
A: good to hear from you!
B: thanks, you too, take care
A: bye for now
"""
PLAN = FitPlan(seed=0, passes=30, turns=12, rate=2e-3, frozen=0, bfloat16=False)


def batch_text(name: str, *, ends: bool) -> str:
    """Return a batch: everybody lives somewhere and has a cat; half of them move."""
    lines = [f"# batch: {name} | language: en | voices: test"]
    for number, (town, speaker) in enumerate(zip(TOWNS, SPEAKERS, strict=True), start=1):
        other = TOWNS[(number + 2) % len(TOWNS)]
        lines += [
            f"=== {name}-{number:03} | plain",
            "@ 2024-01-05",
            f"a {speaker}: I live in {town} || self | live | {town} | + | now",
            f"b {speaker}: we have a cat || self | has pet | cat | + | now",
            "@ 2024-05-05",
        ]
        if (number % 2 == 0) == ends:
            lines.append(
                f"c {speaker}: I moved to {other} || self | live | {other} | + | now || replaces a"
            )
            lines.append(f"? Where does {speaker} live now? | c | {other}")
        else:
            lines.append(f"c {speaker}: hello there || -")
            lines.append(f"? Where does {speaker} live? | a | {town}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dialogues")
    (folder / "en").mkdir()
    (folder / "chat").mkdir()
    for number in range(1, 9):
        name = f"homes-{number:02}"
        (folder / "en" / f"{name}.txt").write_text(batch_text(name, ends=number % 3 == 0))
    (folder / "chat" / "01.txt").write_text(CHAT)
    return folder


def words_of(talks: list[Talk]) -> list[str]:
    texts = " ".join(
        [turn.said.text for talk in talks for turn in talk.turns]
        + [question.text for talk in talks for question in talk.questions]
        + list(SPEAKERS)
    )
    words = sorted({word.strip("?,!") for word in texts.lower().split()})
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, ":", "?", "!", ","]


def small_network(talks: list[Talk]) -> ReaderNetwork:
    torch.manual_seed(3)
    return ReaderNetwork(words_of(talks), width=48, layers=2)


def test_even_batches_are_held_out_and_the_parts_do_not_overlap(data: Path) -> None:
    fitted, chosen, kept = (
        {talk.id.rpartition("-")[0] for talk in read_talks([data], part)}
        for part in ("fit", "choice", "held out")
    )
    assert kept == {"homes-02", "homes-04", "homes-06", "homes-08"}
    assert chosen and not fitted & chosen and not (fitted | chosen) & kept
    assert fitted | chosen == {"homes-01", "homes-03", "homes-05", "homes-07", "chat-01"}


@pytest.mark.parametrize("part", ["choice", "later"])
def test_a_folder_says_that_no_network_reads_its_batches(data: Path, part: Part) -> None:
    before = {other: read_talks([data], other) for other in ("fit", "choice", "held out")}
    (data / part).mkdir()
    (data / part / "barns-01.txt").write_text(batch_text("barns-01", ends=True))
    added = {talk.id.rpartition("-")[0] for talk in read_talks([data], part)}
    assert "barns-01" in added
    assert read_talks([data], "fit") == before["fit"]
    assert read_talks([data], "held out") == before["held out"]
    if part == "later":
        assert added == {"barns-01"} and read_talks([data], "choice") == before["choice"]


def test_a_pair_whose_state_the_labels_leave_open_is_unknown(data: Path) -> None:
    talk = next(
        talk
        for talk in read_talks([data], "fit")
        if any(relation == RELATIONS.index("replaces") for *_, relation in talk.pairs)
    )
    assert talk.ended() == {0: 2}
    told_again = replace(
        talk, turns=(*talk.turns, talk.turns[-1]), pairs=(*talk.pairs, (0, 3, UNKNOWN))
    )
    assert told_again.ended() == {0: 2}
    assert (0, 1, RELATIONS.index("unrelated")) in talk.pairs


def test_equal_seeds_give_equal_bytes_and_others_do_not(data: Path, tmp_path: Path) -> None:
    talks = read_talks([data], "fit")
    plan = replace(PLAN, passes=2)
    files: list[bytes] = []
    for name, seed in (("first", 0), ("again", 0), ("other", 1)):
        path = tmp_path / f"{name}.npz"
        network = fit(small_network(talks), talks, replace(plan, seed=seed))
        texts = inputs(talks, Tokenizer(network.vocabulary))
        save_network(path, file_arrays(network, texts), Thresholds())
        files.append(path.read_bytes())
    assert files[0] == files[1] != files[2]


def test_a_fit_learns_what_ends_and_numpy_reads_as_torch(data: Path, tmp_path: Path) -> None:
    talks = read_talks([data], "fit")
    network = fit(small_network(talks), talks, PLAN)
    path = tmp_path / "reader.npz"
    texts = inputs(talks, Tokenizer(network.vocabulary))
    save_network(path, file_arrays(network, texts), Thresholds(change=0.5))
    reader = open_reader(path)
    held_out = measure.read_vectors(reader, read_talks([data], "held out"))
    pairs = [
        (relation < 2, reader.compare([talk.turns[old].said], talk.turns[new].said)[0].change)
        for talk in held_out
        for old, new, relation in talk.pairs
        if relation != UNKNOWN
    ]
    truth, shares = zip(*pairs, strict=True)
    assert roc_auc_score(truth, shares) > 0.95
    played = measure.play(reader, held_out)
    assert played.updates == 12 and played.found >= 10
    assert played.wrong <= 1, played.faults
    # int8 in coarse steps moves the logits of so small a network, which are up to 5 large
    assert_alike(reader, network, [turn.said.text for turn in held_out[0].turns], within=0.6)
    assert_alike(reader, load_network(path), ["I live in Rome", "hello"], within=1e-3)


def test_the_shipped_file_reads_alike_in_torch_and_numpy() -> None:
    texts = ["My sister sold her car.", "Ich wohne jetzt in Graz", "ya no fumo", "thanks!!"]
    assert_alike(open_reader(), load_network(WEIGHTS_FILE), texts, within=1e-2)


def load_network(path: Path) -> ReaderNetwork:
    """The network of a file, with the numbers that inference sees."""
    arrays = read_arrays(path)
    vocabulary = arrays["vocabulary"].tobytes().decode("utf-8").split("\n")
    layers = sum(name.endswith(".qkv.bias") for name in arrays)
    network = ReaderNetwork(vocabulary, width=arrays["words"].shape[1], layers=layers)
    state: dict[str, torch.Tensor] = {}
    for name in network.state_dict():
        dense, scale = arrays[file_name(name)], arrays.get(file_name(name) + SCALE)
        scaled = (
            dense if scale is None else dense.astype(np.float32) * scale.astype(np.float32)[:, None]
        )
        state[name] = torch.from_numpy(scaled.astype(np.float32))
    network.load_state_dict(state)
    return network.eval()


def assert_alike(
    reader: Reader, network: ReaderNetwork, texts: list[str], *, within: float
) -> None:
    """Check the logits of the turn, pair and light heads, alone and in a padded batch."""
    numpy_net = reader.network
    pieces = [numpy_net.tokenizer.pieces(text) for text in texts]
    alone = [numpy_net.tokenizer.alone(text) for text in pieces]
    joined = [numpy_net.tokenizer.joined(pieces[0], text) for text in pieces]
    extras = np.zeros((len(texts), 4), np.float32)
    with torch.no_grad():
        _, pooled, vectors = network(text_batch(alone))
        _, both, _ = network(text_batch(joined))
        turn = network.turn(pooled).numpy()
        pair = network.pair(torch.cat([both, torch.from_numpy(extras)], dim=1)).numpy()
    own = numpy_net.encode(alone)
    inputs = np.concatenate([numpy_net.encode(joined), extras], axis=1)
    assert np.abs(numpy_net.head("turn", own) - turn).max() < within
    assert np.abs(numpy_net.head("pair", inputs) - pair).max() < within
    assert np.abs(units(own) - vectors.numpy()).max() < within


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "reader.npz"
    for content in (b"no weights", zlib.compress(b"no weights"), WEIGHTS_FILE.read_bytes()[:9_999]):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            open_network(path)


def test_rows_survive_int8_within_half_a_step() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    codes, scales = quantise(matrix, 0.1)
    assert codes.dtype == np.int8
    assert np.abs(codes * scales[:, None].astype(np.float64) - matrix).max() <= scales.max() / 2
    assert scales == pytest.approx(0.1 * np.sqrt((matrix**2).mean(axis=1)), rel=1e-3)


def test_a_row_far_above_its_mean_keeps_its_highest_number() -> None:
    matrix = np.full((1, 400), 0.01, np.float32)
    matrix[0, 7] = 5.0
    codes, scales = quantise(matrix, 0.1)
    assert codes[0, 7] * float(scales[0]) == pytest.approx(5.0, rel=0.01)


def test_later_columns_make_up_for_the_rounding_of_earlier_ones() -> None:
    rng = np.random.default_rng(1)
    inputs_seen = rng.normal(size=(900, 12)) @ rng.normal(size=(12, 40))
    inputs_seen += 0.1 * rng.normal(size=inputs_seen.shape)
    matrix = rng.normal(size=(30, 40))
    moments = inputs_seen.T @ inputs_seen
    faults = [
        np.square(inputs_seen @ (codes * scales[:, None].astype(np.float64) - matrix).T).mean()
        for codes, scales in (quantise(matrix, 0.4), quantise(matrix, 0.4, moments))
    ]
    assert faults[1] < 0.5 * faults[0]
