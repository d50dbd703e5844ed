"""Checkpoints of the whole team as one unit: a folder appears complete, or not at all."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

_MANIFEST = "manifest.json"
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds. Its presence in a folder means that the folder is complete.

    Attributes:
        step: training steps done. seed: of the run; with the step it gives the position in the task stream.
        policies: folders of the policies, each with model, optimiser, scheduler and RNG of every rank.
    """

    step: int
    seed: int
    policies: tuple[str, ...]


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or does not fit the run; earlier checkpoints are untouched."""


class CheckpointStore:
    """The checkpoints below one folder.

    Args:
        root: folder, made when first written to. keep: how many of the latest to keep (at least 1).
    """

    def __init__(self, root: Path, keep: int = 1) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.root = root
        self.keep = keep

    def save(self, manifest: Manifest, write: Callable[[Path], None]) -> Path:
        """Let `write(folder)` fill a folder, then make it the latest checkpoint in one rename.

        Raises:
            CheckpointError: writing failed (a full disk, say: it tells how much was free); what was written is removed
                and the previous checkpoint stays the latest.
        """
        target = self.root / f"step_{manifest.step:06d}"
        partial = target.with_name(target.name + _PARTIAL)
        try:
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir(parents=True)
            write(partial)
            self._write_manifest(partial, manifest)
            if target.exists():
                shutil.rmtree(target)
            partial.rename(target)
            _sync(self.root)
        except Exception as error:
            free = self._free_bytes() / 2**20
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"checkpoint of step {manifest.step} could not be written, with {free:.1f} MiB free on its disk"
            ) from error
        for old in self.complete()[: -self.keep]:
            shutil.rmtree(old)
        return target

    def complete(self) -> list[Path]:
        """Folders of complete checkpoints, oldest first."""
        return sorted(path.parent for path in self.root.glob(f"step_*/{_MANIFEST}") if path.parent.suffix != _PARTIAL)

    def latest(self) -> Path | None:
        """The folder of the newest complete checkpoint."""
        folders = self.complete()
        return folders[-1] if folders else None

    def _free_bytes(self) -> int:
        """Free space where the checkpoints are, or shall be."""
        return shutil.disk_usage(
            next(folder for folder in (self.root, *self.root.absolute().parents) if folder.exists())
        ).free

    @staticmethod
    def _write_manifest(folder: Path, manifest: Manifest) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                _sync(path)
        path = folder / _MANIFEST
        path.write_text(json.dumps(asdict(manifest)))
        _sync(path)
        _sync(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a complete checkpoint.

    Raises:
        CheckpointError: the folder is no complete checkpoint.
    """
    path = folder / _MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{folder} is no complete checkpoint: it has no {_MANIFEST}")
    content = json.loads(path.read_text())
    return Manifest(step=content["step"], seed=content["seed"], policies=tuple(content["policies"]))


def _sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
