"""A recording whose name has 240 letters, which is legal, ended stage 5: the name of the temporary
file was too long, and no TextGrid of any cut was written. A speaker named ``..`` had his recordings
written outside the corpus.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from praatio import textgrid

from mlvae.corpora.digits.mismatch import build_mismatch_corpus
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_json, write_manifest
from mlvae.made import MAX_NAME, path_of_id
from tests.answering import Answering
from tests.data.conftest import digit_clips, digits, options  # noqa: F401
from tests.recipes.conftest import scripts_find_each_other  # noqa: F401

LONG = {"letters": "a" * 240, "umlauts": "ä" * 125, "longest": "b" * 251, "script": "語" * 83}


def test_stage_5_writes_every_textgrid(tmp_path, capsys):
    stage = Answering(tmp_path, ["test00", *LONG.values()])
    assert stage() == 0
    assert "5 in = 5 done + 0 skipped" in capsys.readouterr().out
    found = sorted(stage.textgrids.rglob("*.TextGrid"))
    assert len(found) == 5
    assert stage.textgrids / f"{LONG['letters']}.TextGrid" in found
    assert sorted(tmp_path.rglob("*.TextGrid")) == found
    for path in found:
        assert len(os.fsencode(path.name)) <= MAX_NAME
        textgrid.openTextgrid(str(path), includeEmptyIntervals=True)
    assert stage() == 0  # they are known again


def test_a_file_of_an_id_never_leaves_its_folder(tmp_path):
    for bad in ("", ".", "..", "../x", "/x", "a/../../x", "a/./b", "a//b", "a/", "a\0b", "\ud800"):
        with pytest.raises(ValueError):
            path_of_id(tmp_path, bad, ".wav")
    assert path_of_id(tmp_path, "a/..b", ".wav") == tmp_path / "a" / "..b.wav"


def test_names_that_are_cut_differ_where_the_ids_do(tmp_path):
    paths = {path_of_id(tmp_path, "ä" * 200 + end, ".TextGrid") for end in "abc"}
    assert len(paths) == 3
    for path in paths:
        path.write_text("")


@pytest.mark.parametrize("name", list(LONG))
def test_any_legal_name_can_be_written(tmp_path, name):
    write_json(tmp_path / f"{LONG[name][: MAX_NAME // 3]}.json", {})
    path = tmp_path / LONG[name]
    write_json(path, {"a": 1})
    write_manifest(tmp_path / f".{'x' * 200}.jsonl.gz", [])
    assert path.read_text() == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize("speaker", ["..", "."])
def test_speakers_do_not_lead_out_of_the_corpus(digit_clips, tmp_path, speaker):  # noqa: F811
    clips = [replace(clip, speaker=speaker) for clip in digit_clips]
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        build_mismatch_corpus(clips, tmp_path / "data", options(5))
    assert not list(tmp_path.rglob("*.wav"))


def test_a_speaker_of_a_long_name(digit_clips, tmp_path):  # noqa: F811
    clips = [replace(clip, speaker="s" * 245) for clip in digit_clips]
    build_mismatch_corpus(clips, tmp_path / "data", options(5))
    (cut, *_) = load_cuts(tmp_path / "data" / "manifests" / "cuts_test.jsonl.gz")
    assert cut.id.startswith("s" * 245)
    assert cut.load_audio().shape == (1, cut.num_samples)
