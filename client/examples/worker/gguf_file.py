"""Opens a GGUF file as fp32 arrays, its config and its tokenizer.

Reading and dequantizing takes seconds, so the result is kept beside the cached weights in a folder
`prepared/<name>-<id>`; later starts map `weights.f32` read-only, and processes share its pages.
The folder is written under a temporary name and renamed when it is complete.

    weights.f32     all tensors, fp32, each at a multiple of 64 bytes
    index.json      config, and for each tensor its offset in floats and its shape
    tokenizer.json  of the `tokenizers` library, and chat.json with what it does not say
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from . import weights
from .config import Config
from .tokenizer import Tokenizer, build_tokenizer

FORMAT_VERSION = 1
ALIGN_FLOATS = 16


def open_model(model: str):
    """Returns (Config, {tensor name: fp32 array}, Tokenizer) of a model's name or a GGUF path."""
    path = weights.resolve(model)
    folder = _prepared_folder(path)
    if not folder.is_dir():
        _prepare(path, folder)
    index = json.loads((folder / "index.json").read_text())
    flat = np.memmap(folder / "weights.f32", np.float32, "r")
    tensors = {}
    for name, (offset, shape) in index["tensors"].items():
        count = int(np.prod(shape))
        tensors[name] = np.asarray(flat[offset:offset + count]).reshape(shape)
    return Config(**index["config"]), tensors, Tokenizer.load(folder)


def _prepared_folder(path: Path) -> Path:
    stat = path.stat()
    told = f"{FORMAT_VERSION} {path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    name = f"{path.stem}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    return weights.cache_dir() / "prepared" / name


def _prepare(path: Path, folder: Path) -> None:
    import gguf  # only here: a prepared model does not need it

    sys.stderr.write(f"preparing {path.name}: dequantizing to fp32, once\n")
    reader = gguf.GGUFReader(path)
    meta = {key: field.contents() for key, field in reader.fields.items()}
    config = Config.from_metadata(meta)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".prepare-", dir=folder.parent))
    try:
        tensors = _write_weights(reader, gguf.quants.dequantize, scratch / "weights.f32")
        index = {"config": config.to_dict(), "tensors": tensors}
        (scratch / "index.json").write_text(json.dumps(index))
        build_tokenizer(meta).save(scratch)
        try:
            os.rename(scratch, folder)
        except OSError:  # another process was faster: its folder is as good
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_weights(reader, dequantize, target: Path) -> dict:
    """Returns {name: (offset in floats, shape)}.  GGUF names the fastest axis first."""
    tensors, offset = {}, 0
    with open(target, "wb") as out:
        for tensor in reader.tensors:
            shape = [int(n) for n in reversed(tensor.shape)]
            array = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
            tensors[tensor.name] = (offset, shape)
            out.write(array.tobytes())
            padding = -array.size % ALIGN_FLOATS
            out.write(b"\0" * 4 * padding)
            offset += array.size + padding
        out.flush()
        os.fsync(out.fileno())
    return tensors
