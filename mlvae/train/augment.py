"""Training data varied at random: voices of other lengths of the vocal tract."""

from __future__ import annotations

import torch


def warp_frequencies(
    features: torch.Tensor, factors: torch.Tensor, num_parts: int = 1
) -> torch.Tensor:
    """Stretch the frequency axis, as a shorter or longer vocal tract does.

    Bin k of the result is bin ``factor * k`` of the features, by linear interpolation between two
    bins; beyond the last bin it is the last one. (Vocal tract length perturbation, Jaitly and
    Hinton 2013, on mel bins in the place of frequencies.)

    Args:
        features: float (B, T, F), any normalisation that is the same in all frames.
        factors: float (B,), positive; 1 changes nothing.
        num_parts: how many vectors of mel bins a frame has: 3 with deltas.

    Returns:
        float (B, T, F) on the device of the features; zero frames stay zero.

    Example:
        >>> warp_frequencies(torch.tensor([[[0.0, 1.0, 2.0, 3.0]]]), torch.tensor([0.5]))
        tensor([[[0.0000, 0.5000, 1.0000, 1.5000]]])
    """
    batch, num_frames, size = features.shape
    bins = size // num_parts
    place = factors.unsqueeze(1) * torch.arange(bins, device=factors.device)
    place = place.clamp(max=bins - 1)
    low = place.long()
    weight = (place - low).to(features.dtype)[:, None, None]
    shape = (batch, num_frames, num_parts, bins)

    def of(index: torch.Tensor) -> torch.Tensor:
        return features.reshape(shape).gather(3, index[:, None, None].expand(shape))

    warped = torch.lerp(of(low), of((low + 1).clamp(max=bins - 1)), weight)
    return warped.reshape(batch, num_frames, size)


def random_factors(count: int, most: float, device: torch.device) -> torch.Tensor:
    """Factors evenly from 1 - most to 1 + most, float (count,), by torch's global generator."""
    return (1.0 + most * (2.0 * torch.rand(count) - 1.0)).to(device)
