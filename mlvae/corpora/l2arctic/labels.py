"""Labels of L2-ARCTIC's annotators: a phone, or what it should have been and what was perceived.

``AH0`` is a phone that was said as it should be; ``D,T,s`` a substitution, ``D,sil,d`` a deletion,
``sil,K,a`` an insertion. What was typed differs from that in many small ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlvae.data.lexicon import SIL, fold_phone

SUBSTITUTION, DELETION, INSERTION = "s", "d", "a"


@dataclass(frozen=True)
class PhoneLabel:
    """One label, read."""

    canonical: str  # folded phone that should have been said; ``sil`` for an insertion or silence
    perceived: str  # folded phone that was perceived; ``sil`` for a deletion or silence
    # the annotators' own error type, ``s``, ``d`` or ``a``; where they gave two phones without one,
    # what the phones say; empty for a single phone. It may name an error where folding leaves none
    # (``AH0,AX,s``).
    tag: str = ""
    tidy: bool = True  # whether it is written as documented

    @property
    def error(self) -> str:
        """The error type after folding: ``s``, ``d``, ``a``, or empty where both are equal."""
        return error_type(self.canonical, self.perceived)


def error_type(canonical: str, perceived: str) -> str:
    """``s``, ``d`` or ``a`` for two folded symbols; empty where they are equal."""
    if canonical == perceived:
        return ""
    if perceived == SIL:
        return DELETION
    return INSERTION if canonical == SIL else SUBSTITUTION


def read_label(label: str) -> PhoneLabel:
    """Read a label of the tier ``phones``.

    Case, blanks, signs after a phone and commas at the end do not matter. Two phones without a
    type are of the type that they show; so are two whose type contradicts them (``D,sil,s`` is a
    deletion).

    Example:
        >>> read_label(" ah0 , ax, s")
        PhoneLabel(canonical='ah', perceived='ah', tag='s', tidy=False)

    Raises:
        ValueError: if it cannot be read so; the reason names the label.
    """
    fields = label.split(",")
    while len(fields) > 1 and not fields[-1].strip():
        fields.pop()
    if len(fields) > 3:
        raise ValueError(f"label {label!r} has {len(fields)} parts, three at most are expected")
    tag = fields[2].strip().lower() if len(fields) == 3 else ""
    if len(fields) == 3 and tag not in (SUBSTITUTION, DELETION, INSERTION):
        raise ValueError(f"label {label!r}: {fields[2]!r} is no error type, those are s, d, a")
    missing = [not field.strip() for field in fields[:2]]
    if len(fields) > 1 and ((missing[0] and tag != INSERTION) or (missing[1] and tag != DELETION)):
        raise ValueError(f"label {label!r} lacks a phone")
    try:
        phones = [fold_phone(field) for field in fields[:2]]
    except ValueError as error:
        raise ValueError(f"label {label!r}: {error}") from None
    tidy = len(fields) != 2 and all(map(_is_tidy, fields[:2])) and label.count(",") < 3
    if len(fields) == 1:
        return PhoneLabel(phones[0], phones[0], "", tidy and not label.endswith(","))
    shown = error_type(*phones)
    tag = shown if shown in (DELETION, INSERTION) else tag or shown
    if shown == SUBSTITUTION:
        tag = SUBSTITUTION
    tidy = tidy and len(fields) == 3 and fields[2] == tag
    return PhoneLabel(phones[0], phones[1], tag, tidy)


def _is_tidy(symbol: str) -> bool:
    """Whether a symbol is written as the corpus's documentation says: ``AH0``, ``K``, ``sil``.

    ``sp``, ``spn``, ``err`` and no label at all are tidy, too.
    """
    return re.fullmatch(r"[A-Z]+[0-2]?|sil|sp|spn|err|", symbol) is not None
