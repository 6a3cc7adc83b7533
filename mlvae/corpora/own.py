"""English recordings of one's own: each lies beside the text that was supposed to be read.

The folder has ``train``, ``valid`` and ``test``, each with pairs of a mono recording (``NAME.wav``,
``NAME.FLAC``, ...) and ``NAME.txt`` in UTF-8; in subfolders, too. The path below ``train``,
``valid`` or ``test`` is the name of a recording, and names differ. There is no reference.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from lhotse import MonoCut

from mlvae.data.audio import AudioError, audio_info, file_recording
from mlvae.data.lexicon import Lexicon
from mlvae.data.manifests import SPLITS, corpus_files, recording_cut, write_corpus
from mlvae.data.recordings import RecordingWithText, find_pairs
from mlvae.data.text import UNKNOWN_WORDS, UnknownWords, list_unknown_words
from mlvae.made import InTheWayError, check_apart, remove_made
from mlvae.stage import StageReport, stage_folder

SAMPLING_RATE = 16000
"""Hz, of the audio that features are made of."""

_REMEDY = "give their pronunciations with --lexicon FILE, or skip such texts: --unknown-words skip"


def prepare_own(
    corpus_dir: Path, data_dir: Path, lexicon: Path | None = None, unknown_words: str = "skip"
) -> int:
    """Stage 0: write the manifests and ``corpus.json``; what cannot be used is skipped by name.

    Args:
        corpus_dir: folder of the recordings.
        data_dir: corpus folder to make.
        lexicon: pronunciations besides the dictionary's, see `mlvae.data.lexicon.read_lexicon`.
        unknown_words: texts with words without a pronunciation: ``skip`` them, or ``stop`` with
            their list in ``unknown_words.txt``.

    Returns:
        The exit status of the stage.

    Raises:
        ValueError: the folders or the lexicon cannot be used, words are unknown and the policy is
            to stop, or a part has no recording to use.
        OSError: something cannot be written.
    """
    outputs = corpus_files(data_dir, with_reference=False)
    check_apart(corpus_dir, *outputs)
    with stage_folder("0 prepare", data_dir, outputs):
        report = StageReport(stage="0 prepare", folder=data_dir)
        try:
            cuts, unknown = read_cuts(corpus_dir, Lexicon.load(lexicon), report)
            if unknown and unknown_words == "stop":
                raise ValueError(
                    list_unknown_words(unknown, data_dir, "not in the lexicon", _REMEDY)
                )
            for split in SPLITS:
                if not cuts[split]:
                    raise ValueError(f"no recording to use in {corpus_dir / split}")
        except ValueError:
            report.finish()
            raise
        with contextlib.suppress(InTheWayError):  # one that was changed is somebody's lexicon now
            remove_made(data_dir / UNKNOWN_WORDS)  # of an earlier run
        about = {"title": corpus_dir.name, "synthetic": False, "sampling_rate": SAMPLING_RATE}
        write_corpus(data_dir, cuts, about)
        return report.finish()


def read_cuts(
    corpus_dir: Path, lexicon: Lexicon, report: StageReport
) -> tuple[dict[str, list[MonoCut]], set[str]]:
    """The cuts of each part, and the words that are not in the lexicon."""
    cuts: dict[str, list[MonoCut]] = {split: [] for split in SPLITS}
    names: set[str] = set()

    def skip(name: str, reason: str, place: str) -> None:
        report.skip(name, reason, place=place)

    unknown: set[str] = set()
    for split in SPLITS:
        pairs = find_pairs(corpus_dir / split, skip, names, (".txt",), others=skip)
        for pair in pairs:
            try:
                cuts[split].append(read_cut(pair, lexicon))
            except UnknownWords as error:
                unknown |= set(error.words)
                report.skip(pair.id, str(error), place=str(pair.text))
            except (AudioError, OSError, ValueError) as error:
                report.skip(pair.id, str(error), place=str(pair.recording))
            else:
                names.add(pair.id)
                report.done()
    return cuts, unknown


def read_cut(pair: RecordingWithText, lexicon: Lexicon) -> MonoCut:
    """The cut of a recording, its phones as canonical units.

    Raises:
        UnknownWords: the text has words that are not in the lexicon, or signs.
        AudioError, OSError, ValueError: the recording or its text cannot be used.
    """
    num_samples, sampling_rate = audio_info(pair.recording)  # says what is wrong with a file
    try:
        text = pair.text.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{pair.text.name} is not in UTF-8: {error}") from None
    words = lexicon.read(text)
    if not words:
        raise ValueError("its text has no words")
    phones = [pronunciations[0] for _, pronunciations in words]
    custom = {
        "units": [phone for word in phones for phone in word],
        "words": [word for word, _ in words],  # with word_of_unit, for the tier mlvae_word;
        "word_of_unit": [place for place, word in enumerate(phones) for _ in word],  # no must
    }
    path = pair.recording.resolve()
    recording = file_recording(pair.id, path, num_samples, sampling_rate).resample(SAMPLING_RATE)
    return recording_cut(recording, custom)
