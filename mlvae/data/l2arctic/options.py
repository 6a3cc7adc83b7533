"""What may be chosen about a corpus folder of L2-ARCTIC."""

from __future__ import annotations

from dataclasses import dataclass

from mlvae.data.l2arctic.corpus import SPEAKERS, TEST, VALID

SAMPLING_RATE = 16000
"""Hz, of the audio that features are made of."""


@dataclass(frozen=True)
class CorpusOptions:
    """What fixes the corpus folder, together with the tree it is made from.

    Attributes:
        title: heading of tables.
        synthetic: whether the speech was simulated.
        protocol: ``text`` or ``annotation``.
        unit: ``phone`` or ``bpe`` (pieces of words, protocol text only).
        unknown_words: ``stop`` or ``skip``.
        split: ``official``, or ``speaker:<NAME>``: that one is test, those of `VALID` are valid.
        num_utterances: of the annotated ones, drawn evenly from the speakers; None: all.
        seed: of the drawing.

    Raises:
        ValueError: if a choice is none of these, or pieces are wanted of the annotation.
    """

    title: str = "L2-ARCTIC"
    synthetic: bool = False
    protocol: str = "text"
    unit: str = "phone"
    unknown_words: str = "stop"
    split: str = "official"
    num_utterances: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for value, choices in (
            (self.protocol, ("text", "annotation")),
            (self.unit, ("phone", "bpe")),
            (self.unknown_words, ("stop", "skip")),
        ):
            if value not in choices:
                raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        if self.unit == "bpe" and self.protocol == "annotation":
            raise ValueError("pieces are of the text: unit bpe goes with protocol text alone")
        kind, _, speaker = self.split.partition(":")
        if self.split != "official" and (kind != "speaker" or speaker not in SPEAKERS):
            raise ValueError(
                f"no split {self.split!r}; there are official and speaker:<NAME> of "
                f"{' '.join(sorted(SPEAKERS))}"
            )
        if self.num_utterances is not None and self.num_utterances < 1:
            raise ValueError(f"{self.num_utterances} utterances asked for, at least 1 is needed")

    def split_of(self, speaker: str) -> str:
        """The split of a speaker of `SPEAKERS`."""
        test = TEST if self.split == "official" else (self.split.partition(":")[2],)
        return "test" if speaker in test else "valid" if speaker in VALID else "train"
