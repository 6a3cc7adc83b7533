"""Stage 5 with a system that answers at once, in an experiment of a few cuts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

from lhotse import CutSet, MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem
from lhotse.testing.dummies import dummy_features, dummy_recording

from mlvae.data.manifests import write_json, write_manifest
from mlvae.data.units import UnitTable
from tests.data.conftest import load_script


def make_cut(cut_id: str) -> MonoCut:
    """A second of a recording with features; two units, aligned and answered."""
    tiers = {
        name: [AlignmentItem("a", 0.0, 0.5), AlignmentItem("b", 0.5, 0.5)]
        for name in ("fa", "mlvae", "mlvae_heard")
    }
    supervision = SupervisionSegment(
        cut_id, cut_id, 0.0, 1.0, custom={"units": ["a", "b"]}, alignment=tiers
    )
    recording = dummy_recording(0)
    return MonoCut(cut_id, 0.0, 1.0, 0, [supervision], dummy_features(0), recording)


class Answering:
    """The stage as a function; ``asked`` counts how often the system was asked."""

    def __init__(self, folder: Path, cut_ids: Sequence[str]) -> None:
        self.data, self.exp = folder / "data", folder / "exp"
        self.textgrids = self.exp / "quick" / "textgrids"
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None
        UnitTable(("a", "b")).save(self.data / "units" / "tokens.txt")
        write_json(self.exp / "quick" / "training.json", {})
        self.set_cuts(cut_ids)

    def set_cuts(self, cut_ids: Sequence[str]) -> None:
        cuts = [make_cut(cut_id) for cut_id in cut_ids]
        path = self.exp / "fa" / "cuts_test.jsonl.gz"
        path.unlink(missing_ok=True)
        write_manifest(path, cuts)

    def __call__(self) -> int:
        main = load_script("local/localize.py")
        names = inspect.unwrap(main).__globals__
        names["SYSTEMS"] = {"quick": SimpleNamespace(load=self._load)}
        names["check_systems"] = lambda names: None
        names["load_config"] = lambda path: SimpleNamespace(deltas=False)
        command = ["--data-dir", self.data, "--exp-dir", self.exp, "--config", "conf.yaml"]
        return main([*map(str, command), "--systems", "quick", "--device", "cpu"])

    def _load(self, *args: object) -> dict:
        return {"quick": self._answer}

    def _answer(self, cuts: CutSet) -> tuple[CutSet, list[str]]:
        self.asked += 1
        self.meanwhile()
        return cuts, []
