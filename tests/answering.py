"""Stage 5 with a system that answers at once, in an experiment of a few cuts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from lhotse import CutSet, Features, MonoCut, NumpyFilesWriter, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.config import RecipeConfig, System
from mlvae.data.audio import file_recording
from mlvae.data.manifests import write_json, write_manifest
from mlvae.data.units import UnitTable
from mlvae.train.loop import Passes
from tests.data.conftest import load_script


def make_cut(cut_id: str, features: Features | None = None) -> MonoCut:
    """A second of a recording that nobody reads; two units, aligned and answered."""
    tiers = {
        name: [AlignmentItem("a", 0.0, 0.5), AlignmentItem("b", 0.5, 0.5)]
        for name in ("fa", "mlvae", "mlvae_perceived")
    }
    supervision = SupervisionSegment(
        cut_id, cut_id, 0.0, 1.0, custom={"units": ["a", "b"]}, alignment=tiers
    )
    recording = file_recording(cut_id, Path("none.wav"), 8000, 8000)
    return MonoCut(cut_id, 0.0, 1.0, 0, [supervision], features, recording)


def make_features(folder: Path) -> Features:
    """Of a second, in a file."""
    with NumpyFilesWriter(folder) as writer:
        key = writer.write("second", np.zeros((100, 4), np.float32))
        path, kind = writer.storage_path, writer.name
    return Features("fbank", 100, 4, 0.01, 8000, 0.0, 1.0, kind, path, key, channels=0)


class Answering:
    """The stage as a function; ``asked`` counts how often the system was asked."""

    def __init__(self, folder: Path, cut_ids: Sequence[str]) -> None:
        self.data, self.exp = folder / "data", folder / "exp"
        self.config = folder / "conf.yaml"
        self.config.write_text("# read by nobody")
        self.textgrids = self.exp / "quick" / "textgrids"
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None
        UnitTable(("a", "b")).save(self.data / "units" / "tokens.txt")
        write_json(self.exp / "quick" / "training.json", {})
        self.set_cuts(cut_ids)

    def set_cuts(self, cut_ids: Sequence[str]) -> None:
        features = make_features(self.data / "fbank")
        cuts = [make_cut(cut_id, features) for cut_id in cut_ids]
        path = self.exp / "fa" / "cuts_test.jsonl.gz"
        path.unlink(missing_ok=True)
        write_manifest(path, cuts)

    def __call__(self) -> int:
        main = load_script("local/localize.py")
        names = inspect.unwrap(main).__globals__
        quick = System("quick", "ml_vae")
        names["load_config"] = lambda path, names: RecipeConfig(systems={"quick": quick})
        names["load_localizers"] = lambda setup, cuts: {"quick": self._answer}
        command = ["--data-dir", self.data, "--exp-dir", self.exp, "--config", self.config]
        return main([*map(str, command), "--systems", "quick", "--device", "cpu"])

    def _answer(self, cuts: CutSet, passes: Passes) -> tuple[CutSet, list[str]]:
        self.asked += 1
        self.meanwhile()
        return cuts, []
