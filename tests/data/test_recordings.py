"""Recordings with texts as they are found; that they are answered alike, tests/recipes tell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlvae.data.audio import AudioError
from mlvae.data.recordings import Found, find_recordings, single_recording
from tests.data.conftest import sine


def write(path: Path, text: str | None = None, seconds: float = 0.5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * np.ones(round(seconds * 8000), np.float32), 8000)
    if text is not None:
        path.with_suffix(".txt").write_text(text)
    return path


def texts(found: Found) -> dict[str, str]:
    return {item.id: item.cut().supervisions[0].text for item in found.items()}


def reasons(found: Found) -> dict[str, str]:
    return {name: reason for name, reason, _ in found.skipped}


def test_a_folder(tmp_path):
    write(tmp_path / "a.wav", "plain")
    (tmp_path / "a.lab").write_text("second")
    write(tmp_path / "ann" / "b.wav")
    (tmp_path / "ann" / "b.lab").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9\r\n")
    write(tmp_path / "ann-b.wav", "same id")
    write(tmp_path / "c.wav")
    found = find_recordings(tmp_path)
    assert found.kind == "folder" and found.count == 2
    assert texts(found) == {"a": "plain", "ann-b": "café"}
    assert {item.id: item.speaker for item in found.items()}["a"] is None
    assert reasons(found)["a.lab"] == "a second text of this name, a.txt is used"
    assert reasons(found)["c"] == "no text beside it (No such file: c.txt or c.lab)"
    assert reasons(found)["ann-b"] == "another recording has the same name"


def test_a_table(tmp_path):
    write(tmp_path / "in" / "a.wav")
    table = tmp_path / "list.csv"
    table.write_text(
        "\ufeffpath,Text ,speaker,id\n"
        'in/a.wav,"one, two",ann,first\n'
        "in/a.wav,three,,\n"
        "\n"
        "in/a.wav,four,,first\n"
        "in/a.wav,five\n"
        ",six,,x\n",
        encoding="utf-8",
    )
    found = find_recordings(table)
    assert texts(found) == {"first": "one, two", "in-a": "three"}
    assert [item.speaker for item in found.items()] == ["ann", None]
    assert reasons(found) == {
        "first": "another utterance has the same id",
        "in-a": "2 cells where 4 are due",
        "x": "no path",
    }
    assert [place for _, _, place in found.skipped] == [f"{table}, line {n}" for n in (5, 6, 7)]
    table.write_text("file,text\na,b\n")
    with pytest.raises(ValueError, match="no column path in its first line"):
        find_recordings(table)
    table.write_text("path,text\n")
    with pytest.raises(ValueError, match="a table without a recording"):
        find_recordings(table)


def test_kaldi(tmp_path):
    write(tmp_path / "wav" / "a.wav", seconds=1.0)
    data = tmp_path / "data"
    data.mkdir()
    (data / "wav.scp").write_text("a wav/a.wav\nb\nc none.wav\nd wav/a.wav\nd wav/a.wav\n")
    (data / "text").write_text("a one\tTwo\nc three\nd\ne five\n")
    found = find_recordings(data)
    items = {item.id: item for item in found.items()}
    assert items["a"].cut().supervisions[0].text == "one Two"
    assert items["d"].cut().supervisions[0].text == ""
    with pytest.raises(AudioError, match="no such file"):
        items["c"].cut()
    assert reasons(found) == {
        "b": "a line with an id alone",
        "d": "a second line of this id",
        "e": "no line in segments or wav.scp",
    }
    (data / "segments").write_text("x a 0.25 0.75\ny a 0.5 9\nz q 0 1\nw a 2 3\n")
    (data / "text").write_text("x one\ny two\nz three\nw four\nv five\n")
    found = find_recordings(data)
    cuts = {item.id: item for item in found.items()}
    assert (cuts["x"].cut().start, cuts["x"].cut().duration) == (0.25, 0.5)
    assert cuts["y"].cut().end == 1.0
    with pytest.raises(ValueError, match="its part from 2.0 to 3.0 s is not in the recording"):
        cuts["w"].cut()
    assert reasons(found)["z"] == "no line of q in wav.scp"
    assert reasons(found)["v"] == "no line in segments or wav.scp"


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
@pytest.mark.parametrize(
    ("name", "options", "rate"),
    [
        ("a.mp3", [], 44100),  # by soundfile
        ("a.m4a", ["-c:a", "aac"], 44100),
        ("a.MP4", ["-c:a", "aac", "-f", "mp4"], 44100),
        ("a.wma", [], 44100),
        ("a.aac", [], 44100),
        ("a.webm", ["-c:a", "libopus"], 48000),
    ],
)
def test_what_ffmpeg_decodes(tmp_path, name, options, rate):
    tones = np.stack([sine(1.0, 44100, 300.0), sine(1.0, 44100, 700.0)], axis=1)
    soundfile.write(tmp_path / "a.wav", 0.5 * tones, 44100)
    path = tmp_path / name
    command = ["ffmpeg", "-v", "error", "-i", str(tmp_path / "a.wav"), *options, str(path)]
    subprocess.run(command, check=True)
    (tmp_path / "a.wav").unlink()
    (tmp_path / "a.txt").write_text("one two")
    (utterance,) = find_recordings(tmp_path).items()
    for channel, pitch in ((0, 300.0), (1, 700.0)):
        cut = utterance.cut(channel)
        samples = cut.load_audio()[0]
        assert cut.sampling_rate == rate and cut.duration == pytest.approx(1.0, abs=0.1)
        spectrum = np.abs(np.fft.rfft(samples))
        assert rate * spectrum.argmax() / len(samples) == pytest.approx(pitch, abs=5)
    with pytest.raises(AudioError, match="no channel 2: it has 2"):
        utterance.cut(2)
    if name == "a.mp3":  # stage 1 compares its length with its header
        return
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"no audio" * 500, b""):
        path.write_bytes(broken)
        with pytest.raises(AudioError) as caught:
            utterance.cut()
        reason = str(caught.value)
        assert ("; ffmpeg: " in reason) == bool(broken) and "\n" not in reason


def test_what_was_found_is_known_again(tmp_path):
    path = write(tmp_path / "a.wav", "one")
    first = find_recordings(tmp_path).digest
    assert find_recordings(tmp_path).digest == first
    os.utime(path, (1, 1))
    second = find_recordings(tmp_path).digest
    (tmp_path / "a.txt").write_text("two")
    assert len({first, second, find_recordings(tmp_path).digest}) == 3
    single = single_recording(path, "one")
    assert single.digest != single_recording(path, "two").digest
    assert texts(single) == {"a": "one"}


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match="there is no"):
        find_recordings(tmp_path / "none")
    with pytest.raises(ValueError, match="a folder without a recording"):
        find_recordings(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(ValueError, match="is no folder, table"):
        find_recordings(tmp_path / "a.txt")
    assert reasons(find_recordings(tmp_path)) == {"a.txt": "a text without a recording"}
