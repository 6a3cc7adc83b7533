"""The answer for a cut must be the same alone and in a padded batch."""

from __future__ import annotations

import torch

LENGTHS = [5, 9, 1, 7]


def batch(size: int, lengths=LENGTHS, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs, float (B, T, size), with zero padding; and lengths."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(len(lengths), max(lengths), size, generator=generator)
    for row, length in enumerate(lengths):
        inputs[row, length:] = 0
    return inputs, torch.tensor(lengths)


def check_padding(run, inputs, num_frames, contents=(0.0, 1e4, -1e4)) -> None:
    """Compare ``run(inputs, num_frames)`` with each row alone, for several contents of padding."""
    alone = [
        run(inputs[row : row + 1, :length], num_frames[row : row + 1])[0]
        for row, length in enumerate(num_frames.tolist())
    ]
    for content in contents:
        padded = inputs.clone()
        for row, length in enumerate(num_frames.tolist()):
            padded[row, length:] = content
        found = run(padded, num_frames)
        for row, length in enumerate(num_frames.tolist()):
            torch.testing.assert_close(found[row, :length], alone[row], rtol=1e-5, atol=1e-6)
