"""The frames of a batch laid end to end, as k2 wants them: longest utterance first, no padding.

k2's DenseFsaVec has one row for each frame, and after each utterance one more for the final arc.
Its constructor picks these rows from a padded emission matrix, which is several times as wide as
the network's output. Here they are picked from the network's output, so that nothing is computed
for padding, and the matrix is written once and never copied; or it is written for some utterances
at a time, which then need little memory, and stay in the cache until they are searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import k2
import numpy as np
import torch

from .k2_private import dense_fsa_vec


class FrameRows:
    """Which frame each row of a DenseFsaVec holds.

    k2 refuses utterances without frames. One row stands in for none; what is found on it is
    dropped, because every unit needs a frame and such an utterance is reported as too short.

    Args:
        num_frames: int64 (B,) on CPU.
        width: T of the padded tensors (B, T, C).
        device: of the padded tensors.

    Attributes:
        order: int64 (B,) on CPU; ``order[i]`` is the caller's index of the i-th longest utterance.
        splits: int64 (B + 1,) on CPU; where the rows of the i-th longest utterance begin.
        first: int64 (B,) on the device; row of the first frame of the i-th longest utterance.
    """

    def __init__(self, num_frames: torch.Tensor, width: int, device: torch.device) -> None:
        # numpy, because torch takes many times as long for so few numbers, and wakes its threads.
        frames = num_frames.numpy()
        order = np.argsort(-frames, kind="stable")
        last = np.maximum(frames[order], 1) - 1
        size = last + 2
        splits = np.append(0, np.cumsum(size))
        # The row of a final arc repeats the last frame until dense_fsa_vec overwrites it.
        place = np.arange(splits[-1]) + np.repeat(order * width - splits[:-1], size)
        place[splits[1:] - 1] -= 1
        # Place of each row among the B * T frames of a padded tensor.
        self._place = torch.from_numpy(place).to(device)
        self._width = width
        self.splits = torch.from_numpy(splits)
        self.order = torch.from_numpy(order)
        self.first = self.splits[:-1].to(device)
        empty = num_frames[self.order] == 0
        self._stand_in = None
        if bool(empty.any()):
            self._stand_in = empty.repeat_interleave(torch.from_numpy(size)).unsqueeze(1).to(device)

    def __len__(self) -> int:
        return len(self._place)

    def gather(self, padded: torch.Tensor) -> torch.Tensor:
        """Rows (R, C) of a padded tensor (B, T, C), which is not read at and after num_frames."""
        rows = padded.reshape(-1, padded.shape[2]).index_select(0, self._place)
        return rows if self._stand_in is None else rows.masked_fill(self._stand_in, 0)

    def first_place(self, chosen: torch.Tensor) -> tuple[int, int, int]:
        """The first of some rows in the caller's order: its row, utterance and frame.

        Args:
            chosen: bool (R,), true somewhere.
        """
        row = int(self._place.masked_fill(~chosen, self._place.max() + 1).argmin())
        return (row, *divmod(int(self._place[row]), self._width))

    def of(self, begin: int, end: int) -> slice:
        """Rows of the utterances from ``begin`` to ``end`` (exclusive), in the order here."""
        return slice(int(self.splits[begin]), int(self.splits[end]))

    def dense_fsa_vec(
        self, begin: int, end: int, blocks: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> k2.DenseFsaVec:
        """Put together blocks of columns, label 0 first.

        Args:
            begin: first utterance in the order here.
            end: last utterance, exclusive.
            blocks: of each block, float32 (R, C) and (R, K), where R counts the rows of these
                utterances. It stands for K * C columns: those of the first with the first column
                of the second added to each, then with the second column, and so on.

        Returns:
            The DenseFsaVec. Its scores have one more column before label 0, of the final arcs: 0 in
            their rows and -inf in all others.
        """
        # Two dimensions that broadcast: (R, 1, C) and (R, K, 1).
        pairs = [(values.unsqueeze(1), terms.unsqueeze(2)) for values, terms in blocks]
        sizes = [terms.shape[1] * values.shape[2] for values, terms in pairs]
        like = pairs[0][0]
        if torch.is_grad_enabled() and any(addend.requires_grad for addend in sum(pairs, ())):
            no_final = like.new_full((len(like), 1), -math.inf)
            columns = [(values + terms).flatten(1) for values, terms in pairs]
            scores = torch.cat([no_final, *columns], dim=1)
        else:
            # The same without copies, which would take as long as all the rest.
            scores = like.new_empty(len(like), 1 + sum(sizes))
            column = 1
            for (values, terms), size in zip(pairs, sizes):
                into = scores[:, column : column + size]
                torch.add(values, terms, out=into.unflatten(1, (terms.shape[1], values.shape[2])))
                column += size
            # Last, when the rows are in the cache.
            scores[:, 0] = -math.inf
        splits = self.splits[begin : end + 1] - self.splits[begin]
        final = (splits[1:] - 1).to(scores.device)
        scores.index_fill_(0, final, -math.inf)
        scores[final, 0] = 0.0
        splits = splits.to(scores.device, torch.int32)
        return dense_fsa_vec(scores, splits)
