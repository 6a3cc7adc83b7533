"""The phone set of L2-ARCTIC: ARPAbet without stress, folded to what its annotators can tell apart.

Of the 39 phones of the CMU dictionary ``ao`` and ``zh`` become ``aa`` and ``sh``, which leaves 37;
with silence (``sil``, also spelt ``sp``) and sounds that no phone describes (``err``, ``spn``)
there are 39 symbols. The annotators' ``ax`` is the dictionary's unstressed ``ah``.
"""

from __future__ import annotations

import re
from functools import lru_cache

SIL, ERR = "sil", "err"

PHONES = (
    *("aa", "ae", "ah", "aw", "ay", "b", "ch", "d", "dh", "eh", "er", "ey", "f", "g", "hh", "ih"),
    *("iy", "jh", "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "t", "th", "uh", "uw"),
    *("v", "w", "y", "z"),
)
"""The 37 phones that are left after folding."""

FOLDING = {
    "ao": "aa",
    "zh": "sh",
    "ax": "ah",
    "axr": "er",
    "ix": "ih",
    "ux": "uw",
    "hv": "hh",
    "sp": SIL,
    "spn": ERR,
}
_KNOWN = frozenset([*PHONES, SIL, ERR])
_SYMBOL = re.compile(r"[\W_]*([a-z]+)[0-2]?[\W_]*")


@lru_cache(maxsize=1024)  # a lexicon asks a million times
def fold_phone(symbol: str) -> str:
    """The folded phone of a symbol as dictionaries and annotators write it.

    Case, the stress digit, blanks around it and signs before or after it (``K*``, ``T_``, ``AH)``)
    do not matter; a symbol that is empty or blank is silence.

    Example:
        >>> [fold_phone(symbol) for symbol in ("AO1", "ZH", " ax", "K*", "sp", "spn", "")]
        ['aa', 'sh', 'ah', 'k', 'sil', 'err', 'sil']

    Raises:
        ValueError: if it is no phone; names the symbol.
    """
    if not symbol.strip():
        return SIL
    match = _SYMBOL.fullmatch(symbol.strip().lower())
    folded = FOLDING.get(match[1], match[1]) if match else None
    if folded not in _KNOWN:
        raise ValueError(f"{symbol!r} is no phone")
    return folded


def is_tidy(symbol: str) -> bool:
    """Whether a symbol is written as the corpus's documentation says: ``AH0``, ``K``, ``sil``.

    ``sp``, ``spn``, ``err`` and no label at all are tidy, too.
    """
    return re.fullmatch(r"[A-Z]+[0-2]?|sil|sp|spn|err|", symbol) is not None
