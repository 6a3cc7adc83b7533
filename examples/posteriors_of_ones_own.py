"""Posteriors that some network has left in an array, the symbols of its columns, and a text.

The symbols need not be units: here two allophones are one unit, and CTC's blank is none.
"""

import numpy as np
import torch

from mlvae.fsa import MlFsaCompiler, best_path, posteriors

SYMBOLS = ["<blk>", "t", "ɾ", "a", "o"]
UNIT_OF = {"t": "t", "ɾ": "t", "a": "a", "o": "o"}
UNITS = sorted(set(UNIT_OF.values()))
FRAME_SHIFT = 0.02  # seconds


def flagged(probabilities: np.ndarray, text: str) -> list[tuple[str, str, float, float, float]]:
    """What does not match a text.

    Args:
        probabilities: (T, len(SYMBOLS)), of each frame; rows sum to 1.
        text: canonical units, with blanks between.

    Returns:
        Of each unit that is flagged: it, what was perceived, start and end in seconds, P.
    """
    columns = np.zeros((len(probabilities), 1 + len(UNITS)))  # the blank, then the units
    for symbol, column in zip(SYMBOLS, probabilities.T):
        columns[:, 1 + UNITS.index(UNIT_OF[symbol]) if symbol in UNIT_OF else 0] += column
    log_posteriors = torch.tensor(columns).clamp(min=1e-10).log().float().unsqueeze(0)
    compiler = MlFsaCompiler(num_units=len(UNITS), topology="substitution")
    graphs = compiler.compile([[UNITS.index(unit) for unit in text.split()]])
    emissions = compiler.emissions(log_posteriors, torch.tensor([len(columns)]), blank=0)
    (spans,), (found,) = best_path(graphs, emissions), posteriors(graphs, emissions)
    return [
        (
            UNITS[span.unit],
            UNITS[span.perceived],
            FRAME_SHIFT * span.start,
            FRAME_SHIFT * span.end,
            float(found.mispronounced[span.slot]),
        )
        for span in spans
        if span.mispronounced
    ]


# Somebody says "t a t o" as "t a ɾ a", with spikes as CTC has them and blanks between.
said = ["<blk>", "t", "<blk>", "a", "a", "<blk>", "<blk>", "ɾ", "<blk>", "a", "a", "<blk>"]
probabilities = np.full((len(said), len(SYMBOLS)), 0.02)
probabilities[np.arange(len(said)), [SYMBOLS.index(symbol) for symbol in said]] = 0.92
for unit, perceived, start, end, p in flagged(probabilities, "t a t o"):
    print(f"{unit} was said as {perceived} from {start:.2f} to {end:.2f} s, P = {p:.2f}")
