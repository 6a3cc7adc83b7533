"""`mlvae localize` on recordings however they come, killed, in several processes, and broken."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet

import mlvae.portions
from benchmarks import localize as benchmark
from mlvae import cli, localization
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from mlvae.data.recordings import Utterance, find_recordings
from mlvae.made import RECORD
from mlvae.stage import stage_folder
from tests.data.conftest import ROOT
from tests.formats import PAGE, Format, check_folder, check_records, read_page
from tests.recipes.test_model_folder import models, plain

__all__ = ["models"]  # a fixture


@pytest.fixture(scope="session")
def cuts(finished) -> list:
    return list(plain(load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz")))


def samples_of(cut) -> tuple[np.ndarray, int]:
    return soundfile.read(cut.recording.sources[0].source, dtype="float32")


def text_of(cut) -> str:
    return cut.supervisions[0].text


@pytest.fixture
def recordings(cuts, tmp_path) -> Path:
    """Nine recordings with texts at several depths, in folders of two speakers."""
    folder = tmp_path / "recordings"
    for number, cut in enumerate(cuts[:9]):
        home = folder / ("ann" if number % 2 else "bob/deep")
        home.mkdir(parents=True, exist_ok=True)
        suffix = ".flac" if number % 3 == 0 else ".WAV"
        soundfile.write(home / f"r{number}{suffix}", *samples_of(cut))
        text = home / f"r{number}{'.lab' if number % 4 == 0 else '.txt'}"
        text.write_text(text_of(cut).upper() + "\n")
    (folder / "notes.md").write_text("neither a recording nor a text")
    return folder


@pytest.fixture
def run(models, tmp_path):
    """Runs the command; its exit status."""

    def run(what: Path, out: str = "out", *options: str) -> int:
        model, folder = models["ml-vae-sub"], tmp_path / out
        return cli.main(["localize", str(model), str(what), str(folder), *options])

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def found_units(folder: Path) -> list[tuple[str, ...]]:
    keys = ("unit", "start", "end", "p_mispronounced", "perceived", "flagged")
    return [tuple(row[key] for key in keys) for row in rows(folder / "units.csv")]


def skipped(folder: Path) -> dict[str, str]:
    lines = (folder / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return {line["id"]: line["reason"] for line in map(json.loads, lines)}


def content(folder: Path) -> dict[str, bytes]:
    names = [name for name in os.listdir(folder) if "." in name[1:] and name[0] != "."]
    grids = [f"textgrids/{name}" for name in os.listdir(folder / "textgrids")]
    return {name: (folder / name).read_bytes() for name in (*names, *grids)}


def test_a_folder_gets_all_formats(recordings, run, tmp_path, capsys, models):
    assert run(recordings, "out", "--format", "textgrid,ctm,json,csv,cuts") == 0
    assert "9 in = 9 done + 0 skipped" in capsys.readouterr().out
    out, page = tmp_path / "out", read_page(PAGE.read_text(encoding="utf-8"))
    check_folder(out, page["Answers"])
    check_folder(models["ml-vae-sub"], page["Model folder"])
    check_records(models["ml-vae-sub"] / "model.json", page["model.json"])
    assert check_records(out / "utterances.jsonl", page["utterances.jsonl"]) == 9
    tiers = page["Tiers"]
    del page["Cuts"].names["supervisions[].alignment.*"]
    page["Cuts"].names = {n: s if s in (0, None) else None for n, s in page["Cuts"].names.items()}
    assert check_records(out / "cuts.jsonl.gz", page["Cuts"], tiers, stage=5) == 9
    answers = list(map(json.loads, (out / "utterances.jsonl").read_text().splitlines()))
    assert [answer["id"] for answer in answers[:2]] == ["ann-r1", "ann-r3"]
    assert {answer["speaker"] for answer in answers} == {"ann", "bob/deep"}
    assert {path.stem for path in (out / "textgrids").iterdir()} == {a["id"] for a in answers}
    units = [unit for answer in answers for unit in answer["units"]]
    assert [row["unit"] for row in rows(out / "units.csv")] == [u["symbol"] for u in units]
    assert [row["word"] for row in rows(out / "words.csv")] == [
        word["symbol"] for answer in answers for word in answer["words"]
    ]
    for row, answer in zip(rows(out / "utterances.csv"), answers):
        flagged = [unit["flagged"] for unit in answer["units"]]
        assert int(row["units_flagged"]) == sum(flagged)
        assert float(row["fraction_flagged"]) == pytest.approx(np.mean(flagged), abs=1e-6)
        assert float(row["loop_gain"]) == answer["loop_gain"] >= 0
        assert Path(row["recording"]).is_file()
    lines = [line.split() for line in (out / "units.ctm").read_text().splitlines()]
    assert [line[4] for line in lines] == [unit["symbol"] for unit in units]
    for line, unit in zip(lines, units):
        assert float(line[5]) == pytest.approx(1 - unit["p_mispronounced"], abs=0.006)
    assert len((out / "words.ctm").read_text().splitlines()) == len(rows(out / "words.csv"))


def test_the_example_writes_the_same_textgrids(recordings, run, tmp_path, models):
    (recordings / "ann" / "r1.txt").write_text("one hundred")
    program = [sys.executable, str(ROOT / "examples" / "folder_to_textgrids.py")]
    program += [str(models["ml-vae-sub"]), str(recordings), str(tmp_path / "example")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("ann-r1: not in the")
    assert run(recordings, "out", "--format", "textgrid") == 1
    found, expected = (
        {path.name: path.read_bytes() for path in folder.glob("*.TextGrid")}
        for folder in (tmp_path / "example", tmp_path / "out" / "textgrids")
    )
    assert found == expected and len(expected) == 8


def test_a_textgrid_shows_what_is_flagged(cuts, run, tmp_path):
    for number, cut in enumerate(cuts[:6]):
        first, *others = text_of(cut).split()
        other = "six" if first == "two" else "two"
        soundfile.write(tmp_path / f"{number}.wav", *samples_of(cut))
        (tmp_path / f"{number}.txt").write_text(" ".join([other, *others]))
    assert run(tmp_path) == 0
    flagged = [row for row in rows(tmp_path / "out" / "units.csv") if row["flagged"] == "1"]
    assert len([row for row in flagged if row["index"] == "0"]) >= 3
    for number in range(6):
        text = (tmp_path / "out" / "textgrids" / f"{number}.TextGrid").read_text(encoding="utf-8")
        for name in ("words", "units", "perceived", "p_mispronounced", "flagged"):
            assert f'name = "{name}"' in text
        mine = [row for row in flagged if row["utterance"] == str(number)]
        assert text.count(" > ") == len(mine)
        for row in mine:
            assert row["unit"] != row["perceived"]
            assert f'text = "{row["unit"]} > {row["perceived"]}"' in text
            assert f'text = "{float(row["p_mispronounced"]):.2f}"' in text


def test_however_they_come_the_answers_are_the_same(recordings, cuts, run, tmp_path):
    assert run(recordings, "folder") == 0
    expected = found_units(tmp_path / "folder")
    files = sorted(path for path in recordings.rglob("r*") if path.suffix in (".WAV", ".flac"))
    texts = {path.stem: text_of(cuts[int(path.stem[1:])]) for path in files}

    table = [["speaker", "text", "path"]]
    table += [["ann", texts[path.stem], str(path.relative_to(recordings))] for path in files]
    for name, delimiter in (("list.csv", ","), ("list.tsv", "\t")):
        with (recordings / name).open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(table)
        assert run(recordings / name, name) == 0
        assert found_units(tmp_path / name) == expected

    kaldi = tmp_path / "kaldi"
    kaldi.mkdir()
    (kaldi / "wav.scp").write_text("".join(f"{path.stem} {path}\n" for path in files))
    (kaldi / "text").write_text("".join(f"{path.stem} {texts[path.stem]}\n" for path in files))
    (kaldi / "utt2spk").write_text("".join(f"{path.stem} ann\n" for path in files))
    assert run(kaldi, "of-kaldi") == 0
    assert found_units(tmp_path / "of-kaldi") == expected
    assert {row["speaker"] for row in rows(tmp_path / "of-kaldi" / "utterances.csv")} == {"ann"}

    assert run(tmp_path / "folder" / "cuts.jsonl.gz", "of-cuts") == 0
    assert found_units(tmp_path / "of-cuts") == expected


def test_shar_gives_the_same_and_damage_costs_what_it_hits(cuts, run, tmp_path, capsys):
    some = CutSet.from_cuts(cuts[:7])
    write_manifest(tmp_path / "cuts.jsonl.gz", some)
    shar = tmp_path / "shar"
    shar.mkdir()
    some.to_shar(shar, fields={"recording": "flac"}, shard_size=3, num_jobs=1)
    assert run(tmp_path / "cuts.jsonl.gz", "plain") == 0
    assert run(shar, "out") == 0
    assert "7 utterances in a lhotse Shar" in capsys.readouterr().out
    assert found_units(tmp_path / "out") == found_units(tmp_path / "plain")
    archives = [row["recording"] for row in rows(tmp_path / "out" / "utterances.csv")]
    assert archives == [str(shar / f"recording.{n:06d}.tar") for n in (0, 0, 0, 1, 1, 1, 2)]
    assert cli.main(["audit", str(tmp_path / "out"), str(tmp_path / "audit.csv")]) == 0
    assert cli.main(["report", str(tmp_path / "out"), str(tmp_path / "report")]) == 0
    assert "pages without sound" in capsys.readouterr().out
    first = (shar / "recording.000000.tar").read_bytes()
    (shar / "recording.000000.tar").write_bytes(first[: len(first) // 2])
    (shar / "recording.000001.tar").unlink()
    assert run(shar, "out") == 1
    reasons = skipped(tmp_path / "out")
    assert reasons[cuts[2].id].endswith("recording.000000.tar: unexpected end of data")
    assert reasons[cuts[3].id].endswith("recording.000001.tar: No such file or directory")
    assert cuts[6].id not in reasons and len(rows(tmp_path / "out" / "utterances.csv")) >= 2


def test_parts_of_recordings_by_kaldis_segments(cuts, run, tmp_path):
    first, second = samples_of(cuts[0]), samples_of(cuts[1])
    soundfile.write(tmp_path / "both.wav", np.concatenate([first[0], second[0]]), first[1])
    middle, end = (len(first[0]) / first[1], (len(first[0]) + len(second[0])) / first[1])
    kaldi = tmp_path / "kaldi"
    kaldi.mkdir()
    (kaldi / "wav.scp").write_text("both ../both.wav\n")
    (kaldi / "segments").write_text(f"a both 0 {middle}\nb both {middle} {end}\nc both 3 2\n")
    (kaldi / "text").write_text(f"a {text_of(cuts[0])}\nb {text_of(cuts[1])}\nd one\n")
    assert run(kaldi) == 1
    units = [row["unit"] for row in rows(tmp_path / "out" / "units.csv")]
    assert units == [u for cut in units_of(cuts[:2]) for u in cut]
    assert skipped(tmp_path / "out") == {
        "c": "'both 3 2' is not 'recording begin end' in seconds",
        "d": "no line in segments or wav.scp",
    }


def units_of(cuts) -> list[list[str]]:
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return [[str(digits.index(word)) for word in text_of(cut).split()] for cut in cuts]


def test_commands_run_where_that_is_allowed_alone(cuts, run, tmp_path):
    mark, kaldi = tmp_path / "mark", tmp_path / "kaldi"
    kaldi.mkdir()
    soundfile.write(tmp_path / "a.wav", *samples_of(cuts[0]))
    command = f"touch {shlex.quote(str(mark))}; cat {shlex.quote(str(tmp_path / 'a.wav'))} |"
    (kaldi / "wav.scp").write_text(f"a {command}\n")
    (kaldi / "text").write_text(f"a {text_of(cuts[0])}\n")
    assert run(kaldi) == 2
    assert "a shell command" in skipped(tmp_path / "out")["a"] and not mark.exists()
    assert run(kaldi, "out", "--allow-commands") == 0
    assert mark.exists()
    (cut,) = load_lines(tmp_path / "out" / "cuts.jsonl.gz")
    assert cut["recording"]["sources"][0]["type"] == "command"


def load_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_what_is_broken_is_named_and_the_rest_goes_on(recordings, cuts, run, tmp_path, capsys):
    (recordings / "torn.wav").write_bytes(b"RIFF")
    (recordings / "torn.txt").write_text("one")
    soundfile.write(recordings / "odd.wav", *samples_of(cuts[0]))
    (recordings / "odd.txt").write_text("one hundred & two")
    soundfile.write(recordings / "mute.wav", *samples_of(cuts[0]))
    soundfile.write(recordings / "none.wav", *samples_of(cuts[0]))
    (recordings / "none.txt").write_text(" \n")
    soundfile.write(recordings / "short.wav", samples_of(cuts[0])[0][:800], 8000)
    (recordings / "short.txt").write_text("one " * 30)
    (recordings / "alone.txt").write_text("one")
    assert run(recordings) == 1
    reasons = skipped(tmp_path / "out")
    assert "15 in = 9 done + 6 skipped" in capsys.readouterr().out
    for name, reason in {
        "torn": "not readable as audio",
        "odd": "not in the lexicon: hundred; neither a word nor known punctuation",
        "mute": "no text beside it",
        "none": "no text",
        "short": "10 frames for 30 units",
        "alone.txt": "a text without a recording",
    }.items():
        assert reason in reasons[name]
    for path in recordings.rglob("r*"):
        if path.suffix in (".WAV", ".flac"):
            path.write_bytes(b"")
    assert run(recordings) == 2
    assert (tmp_path / "out" / "units.csv").read_text().count("\n") == 1
    assert os.listdir(tmp_path / "out" / "textgrids") == []


def test_a_chunk_ends_rather_between_speakers_and_never_is_too_large():
    speakers = ["a"] * 20 + ["b"] * 5 + ["c"] * 70 + [None] * 3
    utterances = [Utterance(str(number), speaker=name) for number, name in enumerate(speakers)]
    found = list(localization.chunks(utterances))
    assert [utterance for chunk in found for utterance in chunk] == utterances
    assert [len(chunk) for chunk in found] == [20, 32, 32, 14]
    long = [Utterance(str(number), speaker="a", seconds=400.0) for number in range(4)]
    assert [len(chunk) for chunk in localization.chunks(long)] == [2, 2]


def test_a_killed_run_goes_on_and_gives_the_same(recordings, run, tmp_path, monkeypatch):
    monkeypatch.setattr(mlvae.portions, "FEW", (2, 600.0))
    (recordings / "torn.wav").write_bytes(b"RIFF")
    (recordings / "torn.txt").write_text("one")
    everything = ("--format", "textgrid,ctm,json,csv,cuts")
    work, done, at = localization._Work.__call__, [], 1000

    def killed(self, chunk):
        if len(done) == at:
            raise KeyboardInterrupt
        done.append([utterance.id for utterance in chunk])
        return work(self, chunk)

    monkeypatch.setattr(localization._Work, "__call__", killed)
    assert run(recordings, "whole", *everything) == 1
    total, at = len(done), 3
    assert total > 4
    done.clear()
    with pytest.raises(KeyboardInterrupt):
        run(recordings, "out", *everything)
    assert not (tmp_path / "out" / "units.csv").exists()
    done.clear()
    at = total
    assert run(recordings, "out", *everything) == 1
    assert len(done) == total - 3
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert not (tmp_path / "out" / "parts").exists()


def test_files_of_other_formats_are_of_this_run_or_gone(recordings, run, tmp_path):
    out = tmp_path / "out"
    assert run(recordings, "out", "--format", "ctm,json,textgrid") == 0
    (out / "words.ctm").write_text("mine")
    assert run(recordings, "out", "--format", "csv") == 0
    assert {path.name for path in out.iterdir() if path.suffix in (".csv", ".ctm", ".jsonl")} == {
        *("units.csv", "words.csv", "utterances.csv", "words.ctm", "skipped.jsonl", RECORD)
    }
    assert os.listdir(out / "textgrids") == []


def test_parts_of_other_recordings_are_not_gone_on_from(recordings, cuts, run, monkeypatch):
    monkeypatch.setattr(mlvae.portions, "FEW", (2, 600.0))
    work, done, at = localization._Work.__call__, [], 3

    def killed(self, chunk):
        done.append(chunk)
        if len(done) == at:
            raise KeyboardInterrupt
        return work(self, chunk)

    monkeypatch.setattr(localization._Work, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        run(recordings)
    (recordings / "ann" / "r1.txt").write_text("nine nine")
    done.clear()
    at = 1000
    assert run(recordings) == 0
    assert sum(map(len, done)) == 9  # nothing of the former text is kept


def test_nothing_is_kept_of_recordings_that_are_done(recordings, models):
    utterances = list(find_recordings(recordings).items())
    work = localization._Work(models["ml-vae-sub"], localization.Options(("cuts",)), None)
    sizes = []
    tracemalloc.start()  # of all but tensors
    for number in range(4):
        work([replace(one, id=f"{one.id}-{number}") for one in utterances])
        gc.collect()
        tensors = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
        sizes.append((sum(one.numel() for one in tensors), tracemalloc.get_traced_memory()[0]))
        del tensors
    tracemalloc.stop()
    assert sizes[-1][0] == sizes[1][0]
    assert sizes[-1][1] - sizes[1][1] < 20_000


def test_several_processes_give_the_same(recordings, run, tmp_path, monkeypatch):
    assert run(recordings, "one") == 0
    assert run(recordings, "two", "--num-jobs", "2") == 0
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.parametrize("count", [2, 3])
def test_shards_joined_are_the_bytes_of_one_process(
    count, recordings, run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(mlvae.portions, "FEW", (2, 600.0))
    (recordings / "torn.wav").write_bytes(b"RIFF")
    (recordings / "torn.txt").write_text("one")
    for name in ("alone", "lonely"):
        (recordings / f"{name}.txt").write_text("one")
    everything = ("--format", "textgrid,ctm,json,csv,cuts")
    assert run(recordings, "whole", *everything) == 1
    (counted,) = re.findall(r"(\d+) in = (\d+) done \+ (\d+) skipped", capsys.readouterr().out)
    shards = [f"{number}/{count}" for number in range(count, 0, -1)]
    for shard in shards[1:]:
        assert run(recordings, "out", "--shard", shard) in (0, 1)
    said = capsys.readouterr()
    assert run(recordings, "out", *everything) == 2  # the first of these was lost
    assert f"not done, or not to the end: shard {shards[0]};" in capsys.readouterr().err
    assert not (tmp_path / "out" / "units.csv").exists()
    assert run(recordings, "out", "--shard", shards[0]) in (0, 1)
    out = said.out + capsys.readouterr().out
    sums = re.findall(r"(\d+) in = (\d+) done \+ (\d+) skipped", out)
    assert [sum(map(int, some)) for some in zip(*sums)] == list(map(int, counted))
    page = read_page(PAGE.read_text(encoding="utf-8"))
    check_folder(tmp_path / "out", Format(dict.fromkeys(page["Answers"].names)))
    work, write = localization._Work.__call__, localization._Parts.write
    monkeypatch.setattr(localization._Work, "__call__", None)  # all is done

    def killed(self, number, lines):
        write(self, number, lines)
        if number == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(localization._Parts, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        run(recordings, "out", *everything)
    monkeypatch.setattr(localization._Parts, "write", write)
    assert run(recordings, "out", *everything) == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert not {"parts", "shards"} & set(os.listdir(tmp_path / "out"))
    monkeypatch.setattr(localization._Work, "__call__", work)
    assert run(recordings, "out", "--shard", "99/99") == 0  # there are not so many portions


def test_shards_run_beside_each_other_and_nobody_else_does(recordings, run, tmp_path, capsys):
    shards = [tmp_path / "out" / "shards" / f"{number}-of-2" for number in (1, 2)]
    for path in shards:
        path.mkdir(parents=True)
    with stage_folder("localize --shard 1/2", shards[0], reads=[tmp_path / "out"]):
        assert run(recordings, "out", "--shard", "1/2") == 2
        assert "(stage localize --shard 1/2 on " in capsys.readouterr().err
        assert run(recordings, "out", "--shard", "2/2") == 0
        assert run(recordings, "out") == 2
        assert f"{tmp_path / 'out'} is in use" in capsys.readouterr().err
    (recordings / "ann" / "r1.txt").write_text("nine nine")
    assert run(recordings, "out") == 2
    assert "2-of-2: of another run" in capsys.readouterr().err
    assert run(recordings, "out", "--shard", "3/3") == 0
    assert run(recordings, "out") == 2
    assert "has shards of 2 and of 3: delete" in capsys.readouterr().err


def test_processes_end_with_the_one_that_began_them(recordings, models, tmp_path):
    command = [sys.executable, "-m", "mlvae.cli", "localize", str(models["ml-vae-sub"])]
    process = subprocess.Popen(
        [*command, str(recordings), str(tmp_path / "out"), "--num-jobs", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family: list[int] = []
    until = time.monotonic() + 60
    while len(family) < 3 and process.poll() is None and time.monotonic() < until:
        family = benchmark.family(process.pid)
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert len(family) >= 3
    while any(is_running(pid) for pid in family) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in family)


def is_running(pid: int) -> bool:
    """Whether there is such a process that is not just waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_channel_of_several_and_what_ffmpeg_reads(cuts, run, tmp_path, monkeypatch):
    samples, rate = samples_of(cuts[0])
    noise = 0.1 * np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32)
    folder = tmp_path / "in"
    folder.mkdir()
    soundfile.write(folder / "a.wav", np.stack([noise, samples], 1), rate)
    (folder / "a.txt").write_text(text_of(cuts[0]))
    assert run(folder, "second", "--channel", "1") == 0
    assert run(folder, "third", "--channel", "2") == 2
    assert skipped(tmp_path / "third") == {"a": "no channel 2: it has 2"}
    soundfile.write(folder / "a.wav", samples, rate, "FLOAT")
    assert run(folder, "mono") == 0
    expected = found_units(tmp_path / "mono")
    assert [row[0] for row in found_units(tmp_path / "second")] == units_of(cuts[:1])[0]

    tools = tmp_path / "tools"
    tools.mkdir()
    soundfile.write(tools / "a.w64", samples, rate, "FLOAT", format="W64")
    (tools / "ffmpeg").write_text(f"#!/bin/sh\nexec cat {shlex.quote(str(tools / 'a.w64'))}\n")
    (tools / "ffmpeg").chmod(0o755)
    (folder / "a.wav").rename(folder / "a.m4a")
    (folder / "a.m4a").write_bytes(b"something that soundfile does not read")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    assert run(folder, "decoded") == 0
    assert found_units(tmp_path / "decoded") == expected
    (cut,) = load_lines(tmp_path / "decoded" / "cuts.jsonl.gz")
    assert cut["recording"]["sources"] == [
        {"type": "file", "channels": [0], "source": str(folder / "a.m4a")}
    ]


def test_one_recording_on_the_screen_or_in_a_folder(cuts, models, tmp_path, capsys):
    soundfile.write(tmp_path / "a.wav", *samples_of(cuts[0]))
    command = ["localize", str(models["ml-vae-sub"]), "--audio", str(tmp_path / "a.wav")]
    command += ["--text", text_of(cuts[0])]
    assert cli.main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in lines] == units_of(cuts[:1])[0]
    assert [line.split()[2] for line in lines] == text_of(cuts[0]).split()
    assert cli.main([*command, str(tmp_path / "out")]) == 0
    assert len(rows(tmp_path / "out" / "units.csv")) == len(lines)
    assert cli.main([*command[:-1], "hundred"]) == 2
    assert "not in the lexicon: hundred" in capsys.readouterr().err


def test_words_may_be_added(cuts, run, tmp_path):
    folder, lexicon = tmp_path / "in", tmp_path / "words.txt"
    folder.mkdir()
    soundfile.write(folder / "a.wav", *samples_of(cuts[0]))
    (folder / "a.txt").write_text("hundred nine")
    lexicon.write_text("hundred 1 0 0\n")
    assert run(folder, "out", "--lexicon", str(lexicon)) == 0
    assert [row["unit"] for row in rows(tmp_path / "out" / "units.csv")] == ["1", "0", "0", "9"]
    lexicon.write_text("hundred\n")
    assert run(folder, "out", "--lexicon", str(lexicon)) == 2


def test_what_somebody_changed_stays(recordings, run, tmp_path, capsys):
    assert run(recordings) == 0
    changed = tmp_path / "out" / "textgrids" / "ann-r1.TextGrid"
    changed.write_text("mine")
    assert run(recordings) == 2
    assert "left untouched" in capsys.readouterr().err
    (recordings / "ann" / "r1.txt").unlink()
    (recordings / "ann" / "r3.txt").unlink()
    assert run(recordings) == 1
    grids = os.listdir(tmp_path / "out" / "textgrids")
    assert changed.read_text() == "mine" and "ann-r3.TextGrid" not in grids and len(grids) == 8


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["MODEL", "in"], "MODEL INPUT OUT are needed"),
        (["MODEL", "in", "out", "--audio", "a.wav"], "--audio and --text go together"),
        (["MODEL", "in", "out", "--format", "csv,xml"], "'xml' is none of"),
        (["MODEL", "in", "out", "--num-jobs", "0"], "--num-jobs must be from 1"),
        (["MODEL", "in", "out", "--shard", "4/3"], "--shard must be i/n, as in 3/8"),
        (["MODEL", "--audio", "a.wav", "--text", "a", "--shard", "1/2"], "is of no use with"),
        (["MODEL", "nowhere", "out"], "there is no nowhere"),
        (["MODEL", "/dev/null", "out"], "is no folder, table"),
    ],
)
def test_wrong_options_are_a_line(models, options, match, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    options = [str(models["ml-vae"]) if option == "MODEL" else option for option in options]
    assert cli.main(["localize", *options]) == 2
    err = capsys.readouterr().err
    assert match in err and len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_cut_that_cannot_be_answered_does_not_end_the_others(models, cuts, monkeypatch):
    model = mlvae.load(models["ml-vae-sub"])
    whole = model.localize(cuts[:4])
    localize, bad = type(model.system).localize, cuts[1].id

    def failing(self, some, passes=None):
        if bad in some.ids:
            raise RuntimeError("k2 is not\npleased")
        return localize(self, some, passes)

    monkeypatch.setattr(type(model.system), "localize", failing)
    found = model.localize(cuts[:4])
    assert [answer.id for answer in found.answers] == [cuts[n].id for n in (0, 2, 3)]
    assert found.skipped == {bad: "RuntimeError: k2 is not pleased"}
    for answer, alone in zip(found.answers, [whole.answers[n] for n in (0, 2, 3)]):
        assert [u.perceived for u in answer.units] == [u.perceived for u in alone.units]


def test_nothing_is_kept_of_what_was_answered(models, cuts):
    model = mlvae.load(models["ml-vae-sub"])
    first = model.localize(cuts[:2]).answers
    other = cuts[2].with_id(cuts[0].id)  # an id may come again
    assert model.localize([other]).answers[0].units != first[0].units
    assert len(model.system.dataset.cache) == 0


def test_manifests_with_wrong_lines(cuts, run, tmp_path):
    path = tmp_path / "cuts.jsonl.gz"
    two = [cut.with_id(name) for cut, name in zip(cuts, ("a", "b"))]
    write_manifest(path, CutSet.from_cuts([*two, two[0].with_id("c/d")]))
    lines = load_lines(path)
    lines[1]["recording"]["sources"][0].update(type="url", source="http://somewhere")
    plain_path = tmp_path / "cuts.jsonl"
    odd = [{**lines[0], "id": f"odd{n}", key: 5} for n, key in enumerate(lines[0]) if key != "id"]
    odd += [{**lines[0], "id": "sources", "recording": {"sources": [5]}}, {}, lines[0]]
    plain_path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *odd]))
    assert run(plain_path) == 1
    reasons = skipped(tmp_path / "out")
    assert "only files are read" in reasons["b"]
    assert "id is a path" in reasons["c/d"]
    assert "same id" in reasons["a"]
    answered = {row["utterance"] for row in rows(tmp_path / "out" / "units.csv")}
    assert {"a"} == {name for name in answered if not name.startswith("odd")}
    assert reasons.keys() | answered == {str(line.get("id")) for line in [*lines, *odd]}
    assert "sources" in reasons


def test_the_benchmark_says_what_recordings_cost(recordings, models, tmp_path, capsys):
    path = tmp_path / "cost.json"
    options = ["--few", "2", "--jobs", "1", "--json", str(path)]
    assert benchmark.main([str(models["ml-vae"]), str(recordings), *options]) == 0
    few, many, *_ = json.loads(path.read_text())
    assert (few["count"], many["count"]) == (2, 9)
    assert few["audio"] < many["audio"] and few["skipped"] == many["skipped"] == 0
    assert all(row[key] > 0 for row in (few, many) for key in ("seconds", "work", "megabytes"))
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["jobs", "recordings"] and "mlvae localize" in table[2]
    grown = {**many, "megabytes": 2 * few["megabytes"]}
    assert not benchmark.bounded([few, grown], 1)
