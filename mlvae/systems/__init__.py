"""Kinds of systems: how a system is trained in its folder, and how it answers with what lies there.

:data:`KINDS` says for each kind how. Which systems there are, and of which kind each is, the
configuration says: :class:`mlvae.config.System`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from lhotse import CutSet

from mlvae.systems.acoustic import (
    AcousticSettings,
    load_acoustic,
    pack_acoustic,
    train_acoustic,
)
from mlvae.systems.base import Localizer, NoSettings, Setup, SystemKind, TrainedSystem
from mlvae.systems.gop import MODELS, GopSettings, load_gop
from mlvae.systems.judge import JUDGE
from mlvae.systems.ml_vae import MlVaeSettings, load_ml_vae, train_ml_vae
from mlvae.systems.two_pass import load_two_pass, train_two_pass
from mlvae.systems.w2v_ctc import W2vCtcConfig, load_w2v, train_w2v

__all__ = [
    "KINDS",
    "MADE_BY_SYSTEMS",
    "Localizer",
    "Setup",
    "SystemKind",
    "TrainedSystem",
    "load_localizers",
    "models_digest",
]

#: What a system of the configuration may be of.
KINDS: dict[str, SystemKind] = {
    "align": SystemKind(NoSettings, spans="fa", perceived=None),
    "two_pass": SystemKind(NoSettings, train_two_pass, load_two_pass),
    "w2v_ctc": SystemKind(W2vCtcConfig, train_w2v, load_w2v, files=("checkpoint",)),
    "ml_vae": SystemKind(
        MlVaeSettings, train_ml_vae, load_ml_vae, together=True, required=("model",)
    ),
    "acoustic": SystemKind(
        AcousticSettings,
        train_acoustic,
        load_acoustic,
        files=("path", "tokens", "map"),
        pack=pack_acoustic,
    ),
    "gop": SystemKind(GopSettings, load=load_gop, of_models=tuple(MODELS)),
}

#: Files that training a system writes to its folder, whichever it is.
MADE_BY_SYSTEMS = (
    "checkpoint.safetensors",
    "model.safetensors",
    "scale-checkpoint.safetensors",
    "boundaries.safetensors",
    "boundaries-checkpoint.safetensors",
    JUDGE,
)


def load_localizers(setup: Setup, cuts: CutSet) -> dict[str, Localizer]:
    """Read a trained system.

    Returns:
        By name how it answers, and how those do that the configuration declares to answer with its
        model. Nothing of what is unavailable, or was done by stage 3.
    """
    found = {}
    for name in setup.config.answering(setup.name):
        load = KINDS[setup.config.systems[name].kind].load
        system = load(replace(setup, name=name), cuts) if load else None
        if system is not None:
            found[name] = system.localize
    return found


def models_digest(folder: Path) -> str:
    """64 hexadecimal digits of a system's trained parameters: model and boundary aligner."""
    digest = hashlib.sha256()
    for name in ("model.safetensors", "boundaries.safetensors", JUDGE):
        path = folder / name
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
