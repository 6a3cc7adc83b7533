"""P(mispronounced) of words, over all paths.

Units of one word are not independent: the probabilities of its units must not be multiplied. Here a
word's probability is that of all paths on which one of its units is mispronounced or left out, or
one minus that of the paths on which none is.
"""

from __future__ import annotations

from collections.abc import Sequence

import k2
import numpy as np
import torch

from .checks import checked_beam, checked_integers, listed, shown
from .emissions import Emissions
from .lattices import arc_row_splits, lattices, long_enough, prepared, short_ones
from .layout import SKIPPED_ATTRIBUTES
from .search import POSTERIOR_BEAM


def word_posteriors(
    graphs: k2.Fsa,
    emissions: Emissions,
    words: Sequence[Sequence[int]] | None = None,
    output_beam: float = POSTERIOR_BEAM,
) -> list[torch.Tensor]:
    """P(some unit of the word was mispronounced or left out), for every word.

    With alternative pronunciations it is P(no pronunciation of the word was spoken as it is). The
    time grows with the largest number of words: one forward pass over the lattice for each.

    Args:
        graphs: as in :func:`mlvae.fsa.best_path`.
        emissions: as in :func:`mlvae.fsa.best_path`.
        words: by utterance the word of each of its slots, from 0 on without a gap; None: as the
            graphs were compiled, where every unit of a plain list is a word of its own.
        output_beam: as in :func:`mlvae.fsa.posteriors`.

    Returns:
        By utterance, in the caller's order, float64 (number of words,) on CPU; empty for those that
        are too short.

    Raises:
        ValueError: as :func:`mlvae.fsa.best_path`, or ``words`` does not fit the graphs.
    """
    beam = checked_beam(output_beam)
    graphs, bare = prepared(graphs, emissions)
    broken, num_words = _broken_words(graphs, words, emissions.names)
    short, order = short_ones(graphs, emissions), emissions.order.tolist()
    results = [
        torch.zeros(0 if index in short else count, dtype=torch.float64)
        for index, count in enumerate(num_words)
    ]
    with torch.no_grad():
        positions = long_enough(emissions, short)
        for some, lattice in lattices(bare, emissions, positions, beam):
            indices = [order[position] for position in some]
            wrong = _of_lattice(lattice, broken, max(num_words[index] for index in indices))
            for index, row in zip(indices, wrong):
                results[index] = row[: num_words[index]]
    return results


def _of_lattice(lattice: k2.Fsa, broken: torch.Tensor, num_words: int) -> torch.Tensor:
    """P(wrong) of each word of each utterance of a lattice, float64 (B, num_words) on CPU."""
    everything = lattice.get_tot_scores(log_semiring=True, use_double_scores=True)
    broken = broken.to(lattice.device)[:, lattice.graph_arc.long()]
    scores, right = lattice.scores.clone(), []
    for word in range(num_words):
        lattice.scores = scores.masked_fill((broken == word).any(0), -torch.inf)
        right.append(lattice.get_tot_scores(log_semiring=True, use_double_scores=True))
    # 1 - p without losing what is small; rounding may leave more than everything.
    share = (torch.stack(right, dim=1) - everything.unsqueeze(1)).cpu().clamp(max=0.0)
    return torch.expm1(share).abs()


def _broken_words(
    graphs: k2.Fsa, words: Sequence[Sequence[int]] | None, names: Sequence[str]
) -> tuple[torch.Tensor, list[int]]:
    """What each graph arc says of words.

    Returns:
        int64 (1 + MAX_SKIPS, num_arcs) on CPU: the words that are not right on a path with this
        arc, -1 for none; and by utterance the number of words.
    """
    used = ("unit_pos", "word_pos", "is_mispronounced", *SKIPPED_ATTRIBUTES)
    slot, word_pos, wrong, *skipped = (getattr(graphs, name).cpu().long() for name in used)
    none = torch.full_like(slot, -1)
    slots = torch.stack([torch.where(wrong == 1, slot, none), *skipped])
    broken = torch.full_like(slots, -1)
    splits = arc_row_splits(graphs).tolist()
    if words is not None:
        words = _checked_batch(words, len(splits) - 1)
    num_words = []
    for index, (begin, end) in enumerate(zip(splits[:-1], splits[1:])):
        mine, inside = slice(begin, end), slot[begin:end] >= 0
        word_of = torch.empty(int(slot[mine].max()) + 1, dtype=torch.int64)
        word_of[slot[mine][inside]] = word_pos[mine][inside]
        if words is not None:
            word_of = _checked(words[index], len(word_of), names[index])
        num_words.append(int(word_of.max()) + 1)
        found = slots[:, mine]
        broken[:, mine] = torch.where(found >= 0, word_of[found.clamp(min=0)], -1)
    return broken, num_words


def _checked_batch(words: object, batch: int) -> list:
    try:
        found = listed(words)
    except TypeError:
        raise ValueError(f"words must be a list for each utterance, not {shown(words)}") from None
    if len(found) != batch:
        raise ValueError(f"words of {len(found)} utterances for {batch} graphs")
    return found


def _checked(words: Sequence[int], num_slots: int, name: str) -> torch.Tensor:
    found = checked_integers(words, f"{name}: words")
    if len(found) != num_slots:
        raise ValueError(f"{name}: words of {len(found)} slots, but it has {num_slots}")
    if not np.array_equal(np.unique(found), np.arange(found.max() + 1)):
        raise ValueError(
            f"{name}: words must be 0, 1, 2, ... without a gap: {shown(found.tolist())}"
        )
    return torch.from_numpy(found)
