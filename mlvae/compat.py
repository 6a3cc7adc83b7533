"""All that depends on versions of torch, lhotse and numpy, so that no other file asks for one.

Nothing heavy is imported with this module: ``mlvae env`` must do without torch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: lhotse calls the constructor of torch's Sampler without its argument from this version on ...
LHOTSE_WITHOUT_SOURCE = (1, 32, 2)
#: ... which torch wants before this version ...
TORCH_WITHOUT_SOURCE = (2, 1)
#: ... and refuses from this version on.
TORCH_REFUSES_SOURCE = (2, 10)
#: the first torch that takes arrays of numpy 2
TORCH_OF_NUMPY_2 = (2, 3)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers at the front of a version, to compare: ``2.13.0+cpu`` is (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match.group().split("."))) if match else ()


def misfits(torch: str, lhotse: str | None = None, numpy: str | None = None) -> list[str]:
    """Say which installed versions do not go together though each imports.

    Args:
        torch: its version.
        lhotse: its version; None where there is none, which is for others to say.
        numpy: likewise.

    Returns:
        A short phrase each, with the version that would fit; empty where all fit.
    """
    found = []
    if numpy and numbers(numpy) >= (2,) and numbers(torch) < TORCH_OF_NUMPY_2:
        found.append(f"numpy {numpy} with torch {torch}: torch before 2.3 needs numpy<2")
    if lhotse and numbers(lhotse):
        newer = numbers(lhotse) >= LHOTSE_WITHOUT_SOURCE
        if newer and numbers(torch) < TORCH_WITHOUT_SOURCE:
            found.append(
                f"lhotse {lhotse} does not work with torch {torch}, which needs lhotse==1.32.1"
            )
        elif not newer and numbers(torch) >= TORCH_REFUSES_SOURCE:
            found.append(
                f"lhotse {lhotse} does not work with torch {torch}, which needs lhotse>=1.32.2"
            )
    return found


def grad_scaler(enabled: bool) -> torch.cuda.amp.GradScaler:
    """A new scaler of losses for CUDA; up to torch 2.2 the class has no other name."""
    import torch

    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda", enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)
