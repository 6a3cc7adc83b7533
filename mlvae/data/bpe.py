"""BPE tokens (subwords) as units, learnt from the training text by SentencePiece.

For languages without a lexicon. A token never spans words; the first of a word begins with ``▁``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lhotse import CutSet
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from mlvae.data.checks import RESERVED
from mlvae.data.text import UnknownWords, normalized, spelt_words
from mlvae.stage import StageReport, atomic_path

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

DEFAULT_SIZE = 200
"""Tokens: few enough for each to occur often, in some thousand sentences."""


def words_of_cut(cut: Cut) -> list[str]:
    """The words of a cut, as its one supervision has them, spelt as the tokenizer spells them.

    Raises:
        ValueError: if the cut has not exactly one supervision, or that one has no words, or one of
            these is not to be spelt (a sign, a number, blanks); names it.
    """
    if len(cut.supervisions) != 1:
        raise ValueError(f"{cut.id}: {len(cut.supervisions)} supervisions where one is expected")
    words = (cut.supervisions[0].custom or {}).get("words")
    if not words:
        raise ValueError(f"{cut.id}: no words to make tokens of")
    return [_spelt(word, index, cut.id) for index, word in enumerate(words, start=1)]


def _spelt(word: str, index: int, cut_id: str) -> str:
    spelling = normalized(word) if isinstance(word, str) else ""
    if len(spelling.split()) != 1:
        raise ValueError(f"{cut_id}: word {index}, {word!r}, is not one word")
    try:
        has_letters = bool(spelt_words(word))
    except UnknownWords as error:
        raise ValueError(f"{cut_id}: word {index}, {word!r}: {error}") from None
    if not has_letters:
        raise ValueError(f"{cut_id}: word {index}, {word!r}, is punctuation")
    return spelling


def sentences_of(cuts: Iterable[Cut]) -> list[list[str]]:
    """The words of the cuts that have some to be spelt; `cuts_with_tokens` names the others."""
    sentences = []
    for cut in cuts:
        with contextlib.suppress(ValueError):
            sentences.append(words_of_cut(cut))
    return sentences


def train_bpe(sentences: Iterable[Sequence[str]], vocab_size: int) -> SentencePieceProcessor:
    """Learn BPE; the same sentences, lists of words, give the same tokens.

    Among ``vocab_size`` tokens are the three symbols that SentencePiece adds.

    Raises:
        ValueError: if the text does not give so many tokens or needs more for its letters.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([" ".join(words) for words in sentences]),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,
            normalization_rule_name="identity",
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:  # its messages begin with the place in its own source
        reason = " ".join(str(error).split("]")[-1].split()) or "it gives no reason"
        raise ValueError(f"SentencePiece cannot learn {vocab_size} tokens: {reason}") from None
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def save_bpe(processor: SentencePieceProcessor, path: Path) -> None:
    """Write the model, atomically; SentencePiece's own tools read it."""
    with atomic_path(Path(path)) as temporary:
        temporary.write_bytes(processor.serialized_model_proto())


def with_tokens(cut: Cut, processor: SentencePieceProcessor) -> Cut:
    """A copy of a cut whose canonical units are the BPE tokens of its words.

    ``custom["units"]`` are the tokens and ``custom["word_of_unit"]`` the indices of their words.

    Raises:
        ValueError: as `words_of_cut`, and if a letter was not in the training text or a token is a
            symbol with a meaning of its own; names it.
    """
    units: list[str] = []
    word_of_unit: list[int] = []
    for index, word in enumerate(words_of_cut(cut)):
        ids = processor.encode(word)
        if processor.unk_id() in ids:
            raise ValueError(f"{cut.id}: the training text lacks a letter of {word!r}")
        tokens = processor.id_to_piece(ids)
        for token in tokens:
            if token in RESERVED:
                raise ValueError(f"{cut.id}: {token!r} is a token of {word!r}: {RESERVED[token]}")
        units += tokens
        word_of_unit += [index] * len(ids)
    supervision = cut.supervisions[0]
    custom = {**supervision.custom, "units": units, "word_of_unit": word_of_unit}
    return fastcopy(cut, supervisions=[fastcopy(supervision, custom=custom)])


def cuts_with_tokens(
    cuts: CutSet, processor: SentencePieceProcessor, report: StageReport
) -> tuple[CutSet, CutSet]:
    """The cuts that tokens can be made of, and the others without units, skipped with a reason."""
    made, left = [], []
    for cut in cuts:
        try:
            made.append(with_tokens(cut, processor))
        except ValueError as error:
            report.skip(cut.id, str(error))
            left.append(_without_units(cut))
    return CutSet.from_cuts(made), CutSet.from_cuts(left)


def _without_units(cut: Cut) -> Cut:
    """Units of an earlier run would be tokens of another model."""
    supervisions = []
    for one in cut.supervisions:
        custom = {k: v for k, v in (one.custom or {}).items() if k not in ("units", "word_of_unit")}
        supervisions.append(fastcopy(one, custom=custom))
    return fastcopy(cut, supervisions=supervisions)
