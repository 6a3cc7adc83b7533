"""When the phones of a simulated utterance were spoken, from espeak-ng's events and its samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlvae.corpora.simulate.phones import LIQUIDS, RELEASE, STOPS, base, event_names, is_vowel

MAX_CLOSURE = 0.05
"""Seconds of silence that count as a stop's closure where a pause goes before it."""
MIN_PAUSE = 0.08
"""A shorter silence between two phones (seconds) is no pause, but part of the second one."""
MIN_SILENCE = 0.003
"""Shorter runs of zero samples (seconds) are nothing: the waveform crosses zero there."""

_STRESS_MARKS = "',%="
_GLIDE = ";"  # between IY, IH or AY and a vowel
_LINKING_R = ("r", "r-")  # between ER and a vowel


class PhoneMismatch(ValueError):
    """espeak-ng has spoken other phones than it was given; the message says where."""


def join_events(
    words: Sequence[Sequence[str]], events: Sequence[tuple[str, int]]
) -> list[tuple[int, int]]:
    """Find the phones of words, given to `espeak_text`, in espeak-ng's phoneme events.

    Glides that link a vowel to the next one belong to the first, and so does the release of a
    liquid. Pauses separate; where they belong is left to the caller.

    Args:
        words: phones of each.
        events: name and sample index of every phoneme event, pauses included; the last one marks
            the end of the speech.

    Returns:
        (start, end) of each phone in samples, in order; where a pause follows, the end lies
        before it.

    Raises:
        PhoneMismatch: if there are more, fewer or other phones.
    """
    wanted = [phone for word in words for phone in word]
    times: list[tuple[int, int]] = []
    for index, (mark, start) in enumerate(events):
        name = mark.lstrip(_STRESS_MARKS)
        end = events[index + 1][1] if index + 1 < len(events) else start
        if name.startswith("_"):
            continue
        expected = wanted[len(times)] if len(times) < len(wanted) else None
        if expected is not None and name in event_names(expected):
            times.append((start, end))
        elif times and _links(name, wanted[len(times) - 1]):
            times[-1] = (times[-1][0], end)
        else:
            raise PhoneMismatch(
                f"espeak-ng spoke {name!r} as phone {len(times)}, where {expected or 'none'} was "
                "to be"
            )
    if len(times) < len(wanted):
        raise PhoneMismatch(f"espeak-ng spoke {len(times)} of {len(wanted)} phones")
    return times


def _links(name: str, previous: str) -> bool:
    """Whether a sound is a glide or release that belongs to the phone before it."""
    if base(previous) == "ER":
        return name in _LINKING_R
    if base(previous) in LIQUIDS:
        return name == RELEASE
    return name == _GLIDE and is_vowel(previous)


def silences(samples: np.ndarray, least: int) -> np.ndarray:
    """Runs of at least ``least`` zero samples: (num_runs, 2), begins and ends (exclusive)."""
    sounding = np.concatenate([[-1], np.flatnonzero(samples), [len(samples)]])
    runs = np.stack([sounding[:-1] + 1, sounding[1:]], axis=1)
    return runs[runs[:, 1] - runs[:, 0] >= least]


def silence_before(runs: np.ndarray, start: int, tolerance: int) -> int:
    """Where the silence that ends at a phone's event begins; ``start`` if there is none.

    The event may lie a little after the first sample that sounds: ``tolerance`` samples.
    """
    index = int(np.searchsorted(runs[:, 0], start)) - 1  # the last one that begins before it
    return int(runs[index, 0]) if index >= 0 and runs[index, 1] >= start - tolerance else start


def close_gaps(
    samples: np.ndarray, phones: list[str], times: list[tuple[int, int]], sampling_rate: int
) -> list[tuple[int, int]]:
    """Give the silences between phones to where they belong.

    espeak-ng's event of a stop lies at its release; its closure, digital silence, comes before it
    and is counted to the phone before. All silence that ends at a phone's event becomes part of
    that phone, except that at the beginning and after a pause a stop gets `MAX_CLOSURE` at most
    and other phones nothing.

    Args:
        samples: (num_samples,), silence being exact zeros.
        phones: what was spoken.
        times: (start, end) of each in samples; where the end lies before the next start, there is
            a pause.
        sampling_rate: in Hz.

    Returns:
        (start, end) of each phone in samples; ends equal the next starts except at pauses.

    Raises:
        PhoneMismatch: if a phone has no length.
    """
    least = round(MIN_SILENCE * sampling_rate)
    runs = silences(samples, least)
    starts, ends = [], []
    for index, (phone, (start, _)) in enumerate(zip(phones, times)):
        begin = silent = silence_before(runs, start, least)
        paused = index == 0 or (
            times[index - 1][1] < start and start - silent > MIN_PAUSE * sampling_rate
        )
        if paused:
            closure = round(MAX_CLOSURE * sampling_rate) if base(phone) in STOPS else 0
            begin = max(silent, start - closure)
        starts.append(begin)
        if index:
            ends.append(silent)
    ends.append(silence_before(runs, times[-1][1], least))
    for phone, start, end in zip(phones, starts, ends):
        if end <= start:
            raise PhoneMismatch(f"espeak-ng gave {phone} no length")
    return list(zip(starts, ends))
