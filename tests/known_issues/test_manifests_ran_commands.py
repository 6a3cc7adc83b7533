"""A manifest whose recording had a source of type ``command`` made stage 1 run it in a shell ("60
in = 60 done"); so did a file whose name ended in ``.sph``, as lhotse puts that into a command. A
manifest can hide a command wherever lhotse opens something.
"""

from __future__ import annotations

import json

import pytest
from lhotse import SupervisionSegment

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import load_supervisions, write_manifest
from tests.data.small import change_line, noise_cut, small_cuts, stage_1, write_corpus


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus", small_cuts(tmp_path / "wav"))


def source(kind: str, what: str) -> dict:
    return {"type": kind, "channels": [0], "source": what}


def recording(command: str) -> dict:
    return {
        "id": "r",
        "sources": [source("command", command)],
        "sampling_rate": 8000,
        "num_samples": 2400,
        "duration": 0.3,
    }


def array(kind: str, path: str) -> dict:
    return {"storage_type": kind, "storage_path": path, "storage_key": "k", "shape": [1]}


def in_recording(cut, command):
    cut["recording"]["sources"] = [source("command", command)]


def in_address(cut, command):
    cut["recording"]["sources"] = [source("url", "http://localhost/a.wav")]


def in_placeholder(cut, command):
    cut["recording"]["sources"] = [source("shar", "")]


def in_field(cut, command):
    cut["custom"] = {"target": recording(command)}


def in_field_of_supervision(cut, command):
    cut["supervisions"][0]["custom"]["target"] = recording(command)


def in_transform(cut, command):
    reverb = {"name": "ReverbWithImpulseResponse", "kwargs": {"rir": recording(command)}}
    cut["recording"]["transforms"] = [reverb]


def in_track(cut, command):
    track = {"id": "t", "start": 0, "duration": 0.3, "channel": 0, "recording": recording(command)}
    name = cut["id"]
    cut.clear()
    cut.update(id=name, type="MixedCut", tracks=[{"cut": track, "type": "MonoCut", "offset": 0}])


def in_array(cut, command):
    cut["custom"] = {"codes": array("numpy_files", f"pipe:{command}")}


def in_kaldi_storage(cut, command):
    cut["custom"] = {"codes": array("kaldiio", f"{command} |")}


def in_address_of_array(cut, command):
    cut["custom"] = {"codes": array("lilcom_url", "http://localhost")}


def in_pickled_array(cut, command):
    cut["custom"] = {"codes": array("memory_raw", "")}


HIDDEN = [
    in_recording,
    in_address,
    in_placeholder,
    in_field,
    in_field_of_supervision,
    in_transform,
    in_track,
    in_array,
    in_kaldi_storage,
    in_address_of_array,
    in_pickled_array,
]


@pytest.mark.parametrize("hide", HIDDEN)
def test_nothing_but_files_is_read_wherever_it_is_named(corpus, tmp_path, hide):
    path = change_line(corpus, lambda cut: hide(cut, f"touch {tmp_path}/ran; false"))
    with pytest.raises(ValueError, match="line 1: train0: its .* (only files are|is not run)"):
        load_cuts(path)
    counts, skipped = stage_1(corpus)
    assert not (tmp_path / "ran").exists()
    assert (counts["train"], list(skipped)) == (1, ["train0"])
    assert skipped["train0"]["source"] == f"{path}, line 1"
    assert "file" in skipped["train0"]["reason"]


def test_a_command_is_run_where_the_user_says_so_and_in_no_later_stage(corpus, tmp_path):
    wav = tmp_path / "wav" / "train0.wav"
    change_line(corpus, lambda cut: in_recording(cut, f"touch {tmp_path}/ran; cat {wav}"))
    counts, skipped = stage_1(corpus, allow_commands=True)
    assert counts["train"] == 2 and not skipped
    assert (tmp_path / "ran").exists()
    first, second = load_cuts(corpus / "fbank" / "cuts_train.jsonl.gz")
    assert first.has_features and not first.has_recording
    assert second.has_recording


def test_a_command_that_fails_is_skipped(corpus):
    change_line(corpus, lambda cut: in_recording(cut, "false"))
    counts, skipped = stage_1(corpus, allow_commands=True)
    assert counts["train"] == 1
    assert "its command ended with exit status 1" in skipped["train0"]["reason"]


def test_the_name_of_a_file_is_no_command(tmp_path, monkeypatch):
    cuts = small_cuts(tmp_path / "wav")
    # Some programs would be given this name by a shell.
    odd = tmp_path / "wav" / "$(touch ran).sph"
    cuts["train"].append(noise_cut(tmp_path / "wav", "odd", path=odd))
    corpus = write_corpus(tmp_path / "corpus", cuts)
    monkeypatch.chdir(tmp_path)
    counts, _ = stage_1(corpus)
    assert not (tmp_path / "ran").exists()
    assert counts["train"] == 3


def test_links_out_of_the_folder_are_the_users(tmp_path):
    cuts = small_cuts(tmp_path / "wav")
    elsewhere = noise_cut(tmp_path / "elsewhere", "linked")
    link = tmp_path / "wav" / "linked.wav"
    link.symlink_to(tmp_path / "elsewhere" / "linked.wav")
    elsewhere.recording.sources[0].source = str(link)
    cuts["train"].append(elsewhere)
    counts, _ = stage_1(write_corpus(tmp_path / "corpus", cuts))
    assert counts["train"] == 3


def test_the_reference_is_read_with_the_same_mistrust(tmp_path):
    text = SupervisionSegment("u", "u", 0.0, 1.0, custom={"split": "test"})
    write_manifest(tmp_path / "reference.jsonl.gz", [text])
    assert load_supervisions(tmp_path / "reference.jsonl.gz") == [text]
    content = {**text.to_dict(), "custom": {"target": recording("touch ran")}}
    (tmp_path / "reference.jsonl").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"reference.jsonl, line 1: .* shell command"):
        load_supervisions(tmp_path / "reference.jsonl")
