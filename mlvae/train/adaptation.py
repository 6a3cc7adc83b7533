"""Adaptation of features to a speaker, without annotation.

A phoneme estimator hears a voice that it was not trained on, or an accent, as somewhat off in all
its sounds, and what is off in all of them hides what is mispronounced. The features x of a speaker
are therefore mapped, before the networks see them, by ::

    x' = (I + A) x + b

with the A and b under which the estimator gives its text the greatest posterior (a linear input
network: Neto et al. 1995; the fMLLR of Gales 1998 is its counterpart for Gaussians)::

    mean over frames of -log q(unit of the text | x') + prior / T (|A|^2 + |b|^2)

The unit of a frame is that of the forced alignment, T how many frames the speaker's recordings have
together, and ``prior`` how many the prior is worth (:data:`PRIOR_SECONDS`): of a single recording
little is learned.

The map is found in one step. Where nothing is mapped, let g be the gradient of the summed loss by
the features of a frame, (F,), and z these features with a 1 at the end, (F + 1,). The gradient by
M = [A b] is G, the sum of g z' over frames, and its curvature, taken for a Kronecker product as by
Martens and Grosse (2015)::

    C M = T mean(g g') M mean(z z')
    M = -(C + 2 prior)^-1 G

which is a division in the eigenvectors of both means. Features of neighbouring bins say nearly the
same, and a plain gradient takes long to find what parts them. (Steps like that one, repeated,
raise the posterior of held-out text further and tell no better what is mispronounced.)

A map is the same for all frames of a speaker, so that it cannot take one sound for another only
where the text says so; a sound that a speaker always replaces it does take for right in part. How
many units are mispronounced is therefore asked of the unadapted networks, see
:func:`mlvae.systems.judge.fit_judge`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import torch
from lhotse.cut import Cut
from torch.nn.utils.rnn import pad_sequence

from mlvae.data.dataset import UnitDataset
from mlvae.train.goodness import UnitModel, unit_log_probs
from mlvae.train.targets import IGNORE, frame_targets, variant_spans

#: Seconds of speech that the prior of a map is worth.
PRIOR_SECONDS = 30.0
#: Most seconds of a speaker's speech that are listened to, evenly from all recordings.
MOST_SECONDS = 1200.0
#: Longest piece of a recording that the networks see at once, in seconds.
PIECE_SECONDS = 10.0
#: Largest batch of pieces, in seconds with padding.
BATCH_SECONDS = 20.0


class AdaptedDataset(UnitDataset):
    """Features of another dataset, mapped cut by cut.

    Args:
        dataset: whose features they are; what it keeps in memory is shared.
        maps: by cut id, float (F, F + 1) on CPU: A, and b as the last column. Other cuts stay as
            they are.
    """

    def __init__(self, dataset: UnitDataset, maps: Mapping[str, torch.Tensor]) -> None:
        super().__init__(dataset.table, dataset.deltas, cache_mb=0)
        self.unadapted, self.maps = dataset, maps

    def features(self, cut: Cut) -> torch.Tensor:
        """Mapped features (num_frames, F) float32 of one cut."""
        if cut.id not in self.maps:
            return self.unadapted.features(cut)
        change = self.maps[cut.id]
        return self.cache.get(
            ("adapted", cut.id), lambda: mapped(self.unadapted.features(cut), change)
        )

    def plain(self) -> UnitDataset:
        """Features as they are, without deltas."""
        return self.unadapted.plain()

    def forget(self) -> None:
        """Forget all that is kept."""
        super().forget()
        self.unadapted.forget()


def mapped(features: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Features (..., F) plus A x + b, where ``change`` is A and b, (F, F + 1)."""
    return features + torch.nn.functional.linear(features, change[:, :-1], change[:, -1])


def fit_maps(cuts: Iterable[Cut], model: UnitModel, silence: bool) -> dict[str, torch.Tensor]:
    """Maps of the speakers of some cuts, see the head of this module.

    Recordings of a speaker have one map; one of nobody who is named has its own. Equal cuts give
    equal maps.

    Args:
        cuts: with features, canonical units and the tier ``fa``.
        model: the phoneme estimator, whose posteriors must have gradients by its features.
        silence: whether its last column is silence.

    Returns:
        By cut id, float (F, F + 1) on CPU; see :class:`AdaptedDataset`.

    Raises:
        ValueError: a cut has no tier ``fa``, or one of other units; names the cut.
    """
    groups: dict[Hashable, list[Cut]] = {}
    for cut in cuts:
        speaker = cut.supervisions[0].speaker
        groups.setdefault((cut.id, None) if speaker is None else speaker, []).append(cut)
    maps: dict[str, torch.Tensor] = {}
    for group in groups.values():
        fitted = _fit_map(group, model, silence)
        maps.update((cut.id, fitted) for cut in group)
    return maps


@torch.enable_grad()
def _fit_map(cuts: Sequence[Cut], model: UnitModel, silence: bool) -> torch.Tensor:
    """The map of a speaker, float (F, F + 1) on CPU."""
    size, device = model.dataset.features(cuts[0]).shape[1], model.device
    num_units, states = len(model.dataset.table), model.states_per_unit
    shapes = (size, size + 1), (size, size), (size + 1, size + 1)
    sums = [torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes]
    num_frames, last = 0, ""
    for pieces in _batches(cuts):
        parts, labels = [], []
        for cut, begin, end in pieces:
            if cut.id != last:  # a long recording is read once, not once a piece
                last, whole = cut.id, model.dataset.features(cut)
                columns = _columns(cut, model.dataset, silence)
            parts.append(whole[begin:end])
            labels.append(columns[begin:end])
        lengths = torch.tensor([len(part) for part in parts], device=device)
        features = pad_sequence(parts, batch_first=True).to(device).requires_grad_()
        target = pad_sequence(labels, batch_first=True, padding_value=IGNORE).to(device)
        with torch.backends.cudnn.flags(enabled=False):  # its LSTM has no gradients in evaluation
            log_probs = model.log_probs(features, lengths)
        of_units = unit_log_probs(log_probs, num_units, states)
        if silence:
            of_units = torch.cat([of_units, log_probs[..., -1:]], dim=2)
        known = target != IGNORE
        of_text = of_units.gather(2, target.clamp(min=0).unsqueeze(2)).squeeze(2)
        (slopes,) = torch.autograd.grad(-(of_text * known).sum(), [features])
        slope, seen = slopes[known], features.detach()[known]
        seen = torch.cat([seen, seen.new_ones(len(seen), 1)], dim=1)
        for total, products in zip(sums, (slope.T @ seen, slope.T @ slope, seen.T @ seen)):
            total += products
        num_frames += len(seen)
    prior = 2 * PRIOR_SECONDS / cuts[0].frame_shift
    return _step(*(total.cpu() for total in sums), num_frames, prior).float()


def _step(
    gradient: torch.Tensor,
    of_loss: torch.Tensor,
    of_features: torch.Tensor,
    num_frames: int,
    prior: float,
) -> torch.Tensor:
    """The map M with C M + prior M = -gradient, see the head of this module; all in float64.

    Args:
        gradient: (F, F + 1), G.
        of_loss: (F, F), the sum of g g' over frames.
        of_features: (F + 1, F + 1), the sum of z z'.
        num_frames: that they are summed over, T.
        prior: positive.

    Returns:
        (F, F + 1).
    """
    left, rows = torch.linalg.eigh(of_loss)
    right, cols = torch.linalg.eigh(of_features / max(num_frames, 1))
    curvature = torch.outer(left.clamp(min=0), right.clamp(min=0))
    return -(rows @ ((rows.T @ gradient @ cols) / (curvature + prior)) @ cols.T)


def _columns(cut: Cut, dataset: UnitDataset, silence: bool) -> torch.Tensor:
    """The unit of each frame by forced alignment, or silence, int64 (T,)."""
    spans = variant_spans(cut, dataset.table)
    num_frames, num_units = torch.tensor([cut.num_frames]), len(dataset.table)
    return frame_targets([spans], num_frames, num_units, silence=silence).column[0]


def _batches(cuts: Sequence[Cut]) -> Iterator[list[tuple[Cut, int, int]]]:
    """Pieces of recordings, from frame to frame (exclusive), in batches of about equal ones.

    Those of a recording come one after another.
    """
    pieces = []
    for cut in sorted(cuts, key=lambda cut: (cut.num_frames, cut.id)):
        count = max(1, round(cut.duration / PIECE_SECONDS))
        edges = [cut.num_frames * number // count for number in range(count + 1)]
        pieces += [(cut, begin, end) for begin, end in zip(edges[:-1], edges[1:]) if begin < end]
    seconds = sum(cut.duration for cut in cuts)
    kept = max(1, round(len(pieces) * min(1.0, MOST_SECONDS / seconds)))
    batch: list[tuple[Cut, int, int]] = []
    longest = 0
    for number in range(kept):
        cut, begin, end = piece = pieces[number * len(pieces) // kept]
        longest = max(longest, end - begin)
        if batch and (len(batch) + 1) * longest * cut.frame_shift > BATCH_SECONDS:
            yield batch
            batch, longest = [], end - begin
        batch.append(piece)
    yield batch
