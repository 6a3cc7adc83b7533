"""What every kind of system has in common: what it goes by, and how it is trained and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from lhotse import CutSet

from mlvae.bounds import Settings
from mlvae.data.dataset import UnitDataset
from mlvae.data.units import UnitTable
from mlvae.train.loop import Passes

if TYPE_CHECKING:
    from mlvae.config import RecipeConfig
    from mlvae.systems.align import Aligner


@dataclass
class NoSettings(Settings):
    """Of a kind that has nothing of its own to be told."""


@dataclass(frozen=True)
class Setup:
    """What training or loading a system goes by."""

    name: str  # of the system, as the configuration declares it
    config: RecipeConfig  # of the recipe
    dataset: UnitDataset  # gives features and units
    device: torch.device  # where to run
    seed: int  # of everything random
    folder: Path  # of the system; that of the aligner, ``fa``, lies beside it
    #: Folder of a trained system of the same name, in a model folder, that training begins from;
    #: None: it begins from the seed.
    init: Path | None = None
    aligner: Aligner | None = None  # the one in that folder, where it is read already

    @property
    def table(self) -> UnitTable:
        """Symbols and ids of the units."""
        return self.dataset.table

    @property
    def settings(self) -> Any:
        """The system's settings, of its kind's type."""
        return self.config.systems[self.name].settings


#: Adds the tiers of a system to cuts; also gives the ids of those without an answer. The keyword
#: ``passes`` may say what an earlier run has done.
Localizer = Callable[..., "tuple[CutSet, list[str]]"]


class TrainedSystem(Protocol):
    """A system that is ready to answer."""

    def localize(self, cuts: CutSet, passes: Passes | None = None) -> tuple[CutSet, list[str]]:
        """Add the tiers of the system.

        Args:
            cuts: cuts with audio, features and canonical units.
            passes: what an earlier run has done; None: nothing.

        Returns:
            The cuts with the tiers, in their order, and the ids of those without an answer.
        """


@dataclass(frozen=True)
class SystemKind:
    """How systems of a kind are trained and answer."""

    settings: type[Settings]  # type of what the configuration may say of one
    #: Trains one on training and held-out cuts, which have the tier ``fa``; returns what
    #: ``training.json`` says, with the key ``unavailable`` and the reason where it cannot be
    #: trained. None where stage 3 has done everything, or another system's model is used.
    train: Callable[[Setup, CutSet, CutSet], dict] | None = None
    #: Reads a trained one for some cuts, whose dimension counts; None where it is unavailable.
    #: Raises ValueError where it is not trained, or otherwise; names the file.
    load: Callable[[Setup, CutSet], TrainedSystem | None] | None = None
    #: Whether the processes of a run all call ``train``; otherwise the first alone does.
    together: bool = False
    #: Sections that the configuration must say of one that is trained, as their defaults are the
    #: paper's 24 M parameters, which nobody wants by mistake.
    required: tuple[str, ...] = ()
    spans: str = "mlvae"  # the tier with the answer's spans
    #: The tier with what was perceived, or None where nothing is flagged.
    perceived: str | None = "mlvae_perceived"
    #: Settings that name files of the machine; in a model folder they are empty.
    files: tuple[str, ...] = ()
    #: Copies what a system needs besides what training left into the system's folder of a model
    #: folder; returns what ``model.json`` says of it. None: there is nothing.
    pack: Callable[[Any, Path], dict[str, Any]] | None = None
    #: Kinds whose trained models it answers with, where it has none of its own; a system of this
    #: kind must say whose (``model_of``).
    of_models: tuple[str, ...] = ()
