"""`mlvae report`: which answers it shows, what it makes of them, and what it leaves alone."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import soundfile
from lhotse import CutSet, SupervisionSegment, SupervisionSet

from mlvae.cli import main
from mlvae.made import InTheWayError
from mlvae.report.pages import Shown, write_pages
from mlvae.score.report import find_sources, report
from mlvae.stage import stage_folder
from tests.data.conftest import load_script
from tests.formats import PAGE, check_folder, read_page
from tests.report.conftest import UNITS, answered, write_answers
from tests.score.experiments import SAID, SYSTEMS_FILE, TEXTS


def data_of(path: Path) -> dict:
    """What a page is made of."""
    text = path.read_text(encoding="utf-8")
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(content)


def stage(data, exp, *options: str) -> int:
    said = ["--data-dir", str(data), "--exp-dir", str(exp), "--config", str(SYSTEMS_FILE)]
    return load_script("local/score.py")([*said, *options])


@pytest.fixture
def answers(tmp_path):
    cuts = [
        answered(tmp_path, "good", perceived=UNITS, number=1, custom={"score_per_frame": 1.25}),
        answered(tmp_path, "bad/worse", speaker=None, number=2),
    ]
    return write_answers(tmp_path / "answers" / "cuts.jsonl.gz", cuts)


def test_answers_of_the_command(answers, tmp_path, capsys):
    (answers / "skipped.jsonl").write_text(
        json.dumps({"stage": "localize", "id": "gone", "reason": "no <such> file"}) + "\n"
    )
    out = tmp_path / "out"
    assert main(["report", str(answers), str(out)]) == 0
    assert "stage report: 2 in = 2 done + 0 skipped" in capsys.readouterr().out
    check_folder(out, read_page(PAGE.read_text(encoding="utf-8"))["Report"])
    index = data_of(out / "index.html")
    assert index["rows"] == [
        [2, "bad/worse", "", 1.5, 2.0, "The cat", None, [[2, 5, 400, [0, 1]]]],
        [1, "good", "ann", 1.5, 1.25, "The cat", None, [[0, 5, 400, []]]],
    ]
    assert index["pairs"] == [["dh", "d"], ["t", "-"]]
    (counts,) = index["counts"]
    assert counts["units"][0] == ["dh", 2, 1, 0, 900] and counts["said"] == [[0, 1], [1, 1]]
    assert ["ann", 1, 5, 0, 0, 400, []] in counts["speakers"]
    assert "no &lt;such&gt; file" in (out / "index.html").read_text()
    assert (out / "order.js").read_text() == "window.ORDER = [2,1];\n"
    page = data_of(out / "utterances" / "00002.html")
    (found,) = page["systems"]
    assert found["start"] == [100, 300, 600, 800, 1200] and found["end"][-1] == 1200
    assert found["p"] == [900, 100, 50, 200, 750] and found["deleted"] == {"4": 700}
    assert found["perceived"] == {"0": "d", "4": "-"} and page["wordOf"] == [0, 0, 1, 1, 1]
    assert found["words"] == [[100, 500, 900], [600, 1200, 800]]
    copied, rate = soundfile.read(out / "audio" / "00002.wav")
    original, _ = soundfile.read(tmp_path / "2.wav")
    assert rate == 8000 and (copied == original).all()


def test_bad_lines_are_skipped_by_name(answers, tmp_path, capsys):
    path = answers / "cuts.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    bare = json.loads(lines[0]) | {"id": "bare"}
    bare["supervisions"][0]["alignment"] = {}
    odd = json.loads(lines[0]) | {"id": 3}
    nan = json.loads(lines[0].replace("0.9", "NaN")) | {"id": "nan"}
    short = json.loads(lines[0]) | {"id": "short"}
    short["supervisions"][0]["alignment"]["mlvae_deleted"].pop()
    flat = json.loads(lines[0]) | {"id": "flat", "supervisions": "none"}
    lines += [lines[0], *map(json.dumps, (bare, odd, {}, nan, short, flat))]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert report(answers, tmp_path / "out") == 0
    assert "9 in = 2 done + 7 skipped" in capsys.readouterr().out
    skipped = [json.loads(x) for x in (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()]
    assert {(one["id"], one["source"].rsplit(", ", 1)[1]) for one in skipped} == {
        ("good", "line 3"),
        ("bare", "line 4"),
        ("3", "line 5"),
        ("None", "line 6"),
        ("nan", "line 7"),
        ("short", "line 8"),
        ("flat", "line 9"),
    }
    assert "no answer: no tier mlvae and mlvae_perceived" in [one["reason"] for one in skipped]


@pytest.mark.parametrize(
    ("audio", "sound", "files"),
    [("copy", "../audio/00001.wav", 2), ("link", "../../1.wav", 1), ("none", None, 0)],
)
def test_how_pages_come_to_their_sound(answers, tmp_path, audio, sound, files):
    loud, rate = soundfile.read(tmp_path / "2.wav")
    soundfile.write(tmp_path / "2.flac", loud, rate)
    path = answers / "cuts.jsonl.gz"
    content = gzip.decompress(path.read_bytes()).replace(b"2.wav", b"2.flac")
    path.write_bytes(gzip.compress(content))
    assert report(answers, tmp_path / "out", audio) == 0
    page = data_of(tmp_path / "out" / "utterances" / "00001.html")
    assert page.get("audio") == sound and ("noSound" in page) == (sound is None)
    if sound is not None:
        assert (tmp_path / "out" / "utterances" / sound).resolve().is_file()
    assert len(list((tmp_path / "out").glob("audio/*"))) == files  # flac is copied even so


def test_a_recording_that_cannot_be_read_has_a_page_without_sound(answers, tmp_path, capsys):
    (tmp_path / "1.wav").unlink()
    assert report(answers, tmp_path / "out") == 0
    page = data_of(tmp_path / "out" / "utterances" / "00001.html")
    assert page["noSound"] == "no such file" and "spectrogram" not in page
    assert "report: pages without sound: good: no such file" in capsys.readouterr().out


def test_nothing_that_was_not_made_here_is_touched(answers, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("mine")
    with pytest.raises(InTheWayError, match="index.html: in the way"):
        report(answers, out)
    assert [path.name for path in out.iterdir()] == ["index.html"]
    (out / "index.html").unlink()
    assert report(answers, out) == 0
    (good, *_) = CutSet.from_file(answers / "cuts.jsonl.gz")
    write_answers(tmp_path / "fewer" / "cuts.jsonl.gz", [good])
    assert report(tmp_path / "fewer", out) == 0
    assert [path.name for path in (out / "utterances").iterdir()] == ["00001.html"]
    (out / "utterances" / "00001.html").write_text("changed")
    with pytest.raises(InTheWayError, match="00001.html"):
        report(answers, out)
    assert (out / "utterances" / "00001.html").read_text() == "changed"


def test_answers_and_experiments_are_not_replaced_by_their_report(all_folders, answers):
    _, exp = all_folders
    with stage_folder("localize", answers) as record:
        record.add(answers / "cuts.jsonl.gz", answers / "cuts.jsonl.gz")
    with pytest.raises(InTheWayError, match="cuts.jsonl.gz: in the way, of another stage"):
        report(answers, answers)
    assert main(["report", str(answers), str(answers / "report")]) == 0
    assert (answers / "cuts.jsonl.gz").is_file() and (answers / "report" / "index.html").is_file()
    with pytest.raises(InTheWayError, match="in the way, not made here"):
        report(exp, exp)


def test_a_system_without_p(tmp_path):
    cut = answered(tmp_path, "utt", probabilities=[None] * 5)
    assert report(write_answers(tmp_path / "a" / "cuts.jsonl.gz", [cut]), tmp_path / "out") == 0
    index = data_of(tmp_path / "out" / "index.html")
    assert index["rows"][0][7] == [[2, 5, None, [0, 1]]]
    assert index["counts"][0]["units"][0] == ["dh", 1, 1, 0, None]
    assert data_of(tmp_path / "out" / "utterances" / "00001.html")["systems"][0]["p"] == [None] * 5


def test_what_cannot_be_shown_is_one_line(answers, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for wrong, reason in (
        ([str(tmp_path / "empty")], "empty has no answers: neither cuts.jsonl.gz"),
        ([str(answers), "--audio", "mp3"], "--audio must be one of copy, link, none, not 'mp3'"),
    ):
        assert main(["report", wrong[0], str(tmp_path / "out"), *wrong[1:]]) == 1
        assert reason in capsys.readouterr().err
    path = answers / "cuts.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"mlvae", b"other")))
    with pytest.raises(ValueError, match="no utterance can be shown, as good: no answer"):
        report(answers, tmp_path / "out")
    assert not (tmp_path / "out" / "index.html").exists()


def test_an_experiment_with_its_reference(all_folders):
    data, exp = all_folders
    # What comes in another order, and what one system lacks.
    path = exp / "gop-sub" / "cuts_test.jsonl.gz"
    cuts = list(CutSet.from_file(path))
    path.unlink()
    CutSet.from_cuts(cuts[:0:-1]).to_file(path)
    assert stage(data, exp) == 0
    out = exp / "report"
    check_folder(out, read_page(PAGE.read_text(encoding="utf-8"))["Report"])
    index = data_of(out / "index.html")
    assert index["systems"] == ["ML-VAE", "ML-VAE-sub", "GOP-sub"]  # without forced alignment
    rows = {row[1]: row for row in index["rows"]}
    wrong = {name: sum(a != b for a, b in zip(TEXTS[name], SAID[name])) for name in TEXTS}
    assert {name: row[6] for name, row in rows.items()} == wrong
    assert rows["t0"][7][2] is None and rows["t1"][7][2][0] == 1
    page = data_of(out / "utterances" / f"{rows['t2'][0]:05d}.html")
    assert [one["name"] for one in page["systems"]] == index["systems"]
    assert page["reference"]["perceived"] == list(SAID["t2"]) and page["reference"]["end"][0] == 500
    text = (out / "index.html").read_text()
    scores = json.loads((exp / "results.json").read_text())["systems"]
    assert f"<span>{scores['ML-VAE-sub']['hard_f1']:.3f}</span>" in text
    assert (out / "calibration.png").read_bytes() == (exp / "reliability.png").read_bytes()


def test_stage_6_makes_none_where_it_shall_not(all_folders):
    data, exp = all_folders
    assert stage(data, exp, "--report", "false") == 0
    assert not (exp / "report").exists()
    assert report(exp / "ml-vae-sub", exp.parent / "one", data_dir=data) == 0
    assert data_of(exp.parent / "one" / "index.html")["systems"] == ["ml-vae-sub"]
    assert list(find_sources(exp)) == ["ml-vae", "ml-vae-sub", "gop-sub"]


def test_scores_of_experts_are_shown(answers, tmp_path):
    custom = {"split": "test", "units": list(UNITS), "scores": [0.2, 2.0, 1.6, None, 0.0]}
    custom |= {"word_of_unit": [0, 0, 1, 1, 1], "score": None}
    custom["words"] = [{"word": "the", "score": None}, {"word": "cat", "score": None}]
    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.json").write_text('{"title": "Graded", "sampling_rate": 8000}')
    unscored = custom | {"scores": [None] * 5, "changed_word": 1}
    graded = [
        SupervisionSegment(name, name, 0.0, 1.5, speaker="ann", custom=own)
        for name, own in (("good", custom), ("bad/worse", unscored))
    ]
    SupervisionSet.from_segments(graded).to_file(data / "reference.jsonl.gz")
    assert report(answers, tmp_path / "out", data_dir=data) == 0
    page = data_of(tmp_path / "out" / "utterances" / "00001.html")
    assert page["reference"]["scores"] == [0.2, 2.0, 1.6, None, 0.0]
    rows = data_of(tmp_path / "out" / "index.html")["rows"]
    assert {row[1]: row[6] for row in rows} == {"good": 2, "bad/worse": None}


def test_utterances_come_one_by_one(tmp_path):
    """The page of one is there before the next is asked for."""
    from mlvae.answers import answer_of
    from mlvae.report.pages import About

    def utterances():
        for number in range(3):
            assert len(list((tmp_path / "out").glob("utterances/*"))) == number
            yield Shown({"one": answer_of(answered(tmp_path, f"utt-{number}"))})

    (tmp_path / "out").mkdir()
    about = About("Mine", ["one"])
    assert write_pages(tmp_path / "out", tmp_path / "out", about, utterances(), "none") == 3
