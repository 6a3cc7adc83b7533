"""Mismatch localisation between speech and text with k2, without human annotation."""

from __future__ import annotations

import os
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


def _use_vectors_of_amd(cpuinfo: str = "/proc/cpuinfo") -> None:
    """Let the MKL of torch 1 multiply matrices with AVX2 on CPUs of AMD.

    It would not by itself, and be a third as fast. It looks at this variable when it first
    multiplies, newer ones never do, and what the user has set stays.
    """
    try:
        with open(cpuinfo, encoding="ascii", errors="replace") as file:
            about = file.read(4096)
    except OSError:  # not Linux
        return
    if "AuthenticAMD" in about and " avx2 " in about:
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")


_use_vectors_of_amd()
