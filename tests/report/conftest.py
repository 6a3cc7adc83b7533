"""Answers as `mlvae localize` leaves them, and a browser to look at their report with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment
from lhotse.supervision import AlignmentItem

from mlvae.data.audio import file_recording, write_wav
from mlvae.data.manifests import write_manifest

RATE = 8000
#: Of `answered`: the units, how they are perceived, and their P.
UNITS, PERCEIVED = ("dh", "ah", "k", "ae", "t"), ("d", "ah", "k", "ae", "-")
PROBABILITIES = (0.9, 0.1, 0.05, 0.2, 0.75)
WORDS, WORD_OF = ("the", "cat"), (0, 0, 1, 1, 1)


def answered(
    folder: Path,
    name: str,
    text: str = "The cat",
    words: Sequence[str] = WORDS,
    units: Sequence[str] = UNITS,
    perceived: Sequence[str] = PERCEIVED,
    speaker: str | None = "ann",
    probabilities: Sequence[float | None] = PROBABILITIES,
    number: int = 0,
    custom: dict[str, Any] | None = None,
) -> MonoCut:
    """A cut of 1.5 seconds with an answer, and its recording in a file; five units, two words."""
    path = folder / f"{number}.wav"
    if not path.exists():
        times = np.arange(int(1.5 * RATE)) / RATE
        write_wav(path, 0.5 * np.sin(2 * np.pi * (300 + 200 * times) * times), RATE)
    starts = [0.1, 0.3, 0.6, 0.8, 1.2]
    ends = [0.3, 0.5, 0.8, 1.2, 1.2]  # the last has no length
    spans = [(a, round(b - a, 6)) for a, b in zip(starts, ends)]
    words_at = [(0.1, 0.4), (0.6, 0.6)]

    def tier(symbols: Sequence[str], scores: Sequence[float | None]) -> list[AlignmentItem]:
        return [AlignmentItem(s, *span, p) for s, span, p in zip(symbols, spans, scores)]

    tiers = {
        "fa": tier(units, [2.0] * 5),
        "mlvae": tier(units, probabilities),
        "mlvae_perceived": tier(perceived, probabilities),
        "mlvae_deleted": tier(units, [0.0, 0.0, 0.0, 0.0, 0.7]),
        "mlvae_word": [
            AlignmentItem(w, *span, p) for w, span, p in zip(words, words_at, (0.9, 0.8))
        ],
    }
    about = {"units": list(units), "words": list(words), "word_of_unit": list(WORD_OF)}
    supervision = SupervisionSegment(
        name, name, 0.0, 1.5, text=text, speaker=speaker, custom=about, alignment=tiers
    )
    recording = file_recording(name, path, int(1.5 * RATE), RATE)
    cut = MonoCut(name, 0.0, 1.5, 0, [supervision], None, recording)
    cut.custom = custom
    return cut


def write_answers(path: Path, cuts: Sequence[MonoCut]) -> Path:
    """A manifest of answers; returns its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(path, cuts)
    return path.parent


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[Any]:
    """Chromium without a window; one for all tests."""
    programs = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    missing = programs + ["selenium"] * (find_spec("selenium") is None)
    if missing:
        reason = (
            f"no {', no '.join(missing)} (apt-get install chromium chromium-driver; mlvae[dev])"
        )
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from benchmarks.report import open_browser

    driver = open_browser(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
