"""Mismatch localisation between speech and text with k2, without human annotation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mlvae.model import Model

__version__ = "0.1.0"


def load(
    folder: Path | str, device: str = "cpu", lexicon: Path | None = None, g2p: bool = False
) -> Model:
    """Read a model folder; see :func:`mlvae.model.load`; torch is imported here."""
    from mlvae.model import load as load_model

    return load_model(folder, device, lexicon, g2p)
