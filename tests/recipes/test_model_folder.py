"""A model folder: packed from a whole run, copied elsewhere, read, and read with mistrust."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet
from lhotse.utils import fastcopy

import mlvae
from mlvae import cli
from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import write_manifest
from mlvae.made import file_digest
from mlvae.model import OtherVersions
from tests.data.conftest import ROOT, sine
from tests.systems.sounds import write_checkpoint

SYSTEMS = ("ml-vae", "ml-vae-sub")


@pytest.fixture(scope="session")
def models(finished, tmp_path_factory) -> dict[str, Path]:
    """By system its model folder, where nothing else of the run lies."""
    packed, moved = tmp_path_factory.mktemp("packed"), tmp_path_factory.mktemp("moved")
    for name in SYSTEMS:
        command = ["pack", str(finished.exp / name), str(packed / name), "--licence", "free"]
        assert cli.main(command) == 0
        shutil.copytree(packed / name, moved / name)
    shutil.rmtree(packed)
    return {name: moved / name for name in SYSTEMS}


def plain(cuts: CutSet) -> CutSet:
    """Cuts as somebody else would have them: a recording and a text."""
    return CutSet.from_cuts(
        fastcopy(
            cut,
            features=None,
            supervisions=[fastcopy(s, alignment=None, custom={}) for s in cut.supervisions],
        )
        for cut in cuts
    )


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_copy_answers_to_the_bit_what_stage_5_answered(finished, models, name):
    answered = load_cuts(finished.exp / name / "cuts_test.jsonl.gz")
    found = mlvae.load(models[name]).localize(plain(answered))
    assert found.skipped == {}
    assert len(found.answers) == len(answered) > 5
    for answer, cut in zip(found.answers, answered):
        assert answer.cut.supervisions[0].alignment == cut.supervisions[0].alignment
        assert [unit.symbol for unit in answer.units] == cut.supervisions[0].custom["units"]
        assert [word.symbol for word in answer.words] == cut.supervisions[0].custom["words"]
        assert answer.loop_gain == cut.custom["loop_gain"] >= 0
        assert answer.score_per_frame == cut.custom["score_per_frame"]


#: Runs `mlvae` with its arguments, but for the first: a folder of which nothing may be read.
ELSEWHERE = """
import os, sys
hidden, keep = os.path.join(sys.argv[1], ""), os.path.join(sys.prefix, "")
def hook(event, arguments):
    path = os.path.abspath(os.fsdecode(arguments[0])) if event == "open" and isinstance(
        arguments[0], (str, bytes)) else ""
    if path.startswith(hidden) and not path.startswith(keep):
        raise SystemExit(f"{path} was read")
sys.addaudithook(hook)
from mlvae.cli import main
import mlvae
assert not mlvae.__file__.startswith(hidden)
sys.exit(main(sys.argv[2:]))
"""


def test_a_place_without_the_checkout_gives_the_same(finished, models, tmp_path):
    for number, cut in enumerate(load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz")):
        path = tmp_path / "in" / f"{number}.wav"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(cut.recording.sources[0].source, path)
        path.with_suffix(".txt").write_text(cut.supervisions[0].text)
    options = ["--format", "csv,textgrid"]
    command = ["localize", str(models["ml-vae-sub"]), str(tmp_path / "in"), str(tmp_path / "here")]
    assert cli.main([*command, *options]) == 0
    shutil.copytree(ROOT / "mlvae", tmp_path / "site" / "mlvae")
    shutil.copytree(models["ml-vae-sub"], tmp_path / "other" / "model")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", ELSEWHERE, str(ROOT), "localize", "model", "../in", "there"]
    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path / "other",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    names = [Path("units.csv"), Path("words.csv")]
    names += [path.relative_to(tmp_path / "here") for path in tmp_path.glob("here/textgrids/*")]
    assert len(names) > 7
    for name in names:
        there = (tmp_path / "other" / "there" / name).read_bytes()
        assert there == (tmp_path / "here" / name).read_bytes(), name


def test_a_text_of_another_recording_stands_out(models, finished):
    cuts = list(plain(load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz")))
    texts = [cut.supervisions[0].text for cut in cuts]
    swapped = [
        fastcopy(cut, supervisions=[fastcopy(cut.supervisions[0], text=text)])
        for cut, text in zip(cuts, texts[1:] + texts[:1])
    ]
    model = mlvae.load(models["ml-vae-sub"])
    own, others = (model.localize(some).answers for some in (cuts, swapped))
    gains = [np.median([answer.loop_gain for answer in answers]) for answers in (own, others)]
    assert gains[1] > 2 * gains[0]


def test_a_recording_in_memory(models, finished):
    (cut, *_) = load_cuts(finished.exp / "ml-vae" / "cuts_test.jsonl.gz")
    samples, rate = soundfile.read(cut.recording.sources[0].source, dtype="float32")
    model = mlvae.load(models["ml-vae"])
    state = torch.get_rng_state()
    answer = model.localize_recording(samples, rate, cut.supervisions[0].text)
    assert [unit.symbol for unit in answer.units] == cut.supervisions[0].custom["units"]
    again = model.localize_recording(np.repeat(samples, 2), 2 * rate, cut.supervisions[0].text)
    assert [unit.symbol for unit in again.units] == [unit.symbol for unit in answer.units]
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="not in the lexicon: hundred"):
        model.localize_recording(samples, rate, "one hundred")
    with pytest.raises(ValueError, match=r"shape \(2, 5\)"):
        model.localize_recording(np.zeros((2, 5)), rate, "one")
    with pytest.raises(ValueError, match="digital silence"):
        model.localize_recording(np.zeros(4000), rate, "one")


def test_the_lines_of_the_readme(models, finished, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- a model folder in Python -->\n```python\n(.*?)```", text, re.S)
    assert len([line for line in code.splitlines() if line]) == 10
    shutil.copytree(models["ml-vae-sub"], tmp_path / "models" / "digits")
    (cut, *_) = load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz")
    (tmp_path / "recordings").mkdir()
    shutil.copy(cut.recording.sources[0].source, tmp_path / "recordings" / "ann-01.wav")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["one", "two", "three"]


def test_what_cannot_be_used_is_skipped_by_name(models, finished):
    first, second, *_ = plain(load_cuts(finished.exp / "ml-vae" / "cuts_test.jsonl.gz"))
    mute = fastcopy(first, id="mute", supervisions=[])
    gone = fastcopy(first, id="gone", recording=None)
    found = mlvae.load(models["ml-vae"]).localize([mute, second, gone])
    assert [answer.id for answer in found.answers] == [second.id]
    assert found.skipped == {
        "mute": "0 supervisions where one is expected",
        "gone": "no audio",
    }


@pytest.mark.parametrize("most", [3, 9], ids=["too many together", "two alone"])
def test_what_fails_leaves_the_others_as_they_are(models, finished, monkeypatch, most):
    cuts = list(plain(load_cuts(finished.exp / "ml-vae-sub" / "cuts_test.jsonl.gz")))[:7]
    failing = {cuts[1].id, cuts[6].id} if most == 9 else set()
    model = mlvae.load(models["ml-vae-sub"])
    groups = [cuts[:3], cuts[3:5], cuts[5:]] if most == 3 else [cuts]  # halves of 7, and of 4
    expected = [
        answer
        for group in groups
        for answer in model.localize(cut for cut in group if cut.id not in failing).answers
    ]
    localize = type(model.system).localize

    def breaks(system, some, **options):
        if len(some) > most or failing & set(some.ids):
            raise RuntimeError("too much")
        return localize(system, some, **options)

    monkeypatch.setattr(type(model.system), "localize", breaks)
    found = model.localize(cuts)
    assert found.answers == expected
    assert found.skipped == dict.fromkeys(failing, "RuntimeError: too much")


def test_the_folder_says_what_it_is(models, finished):
    about = json.loads((models["ml-vae-sub"] / "model.json").read_text())
    training = json.loads((finished.exp / "ml-vae-sub" / "training.json").read_text())
    trained = load_cuts(finished.exp / "fa" / "cuts_train.jsonl.gz")
    assert about["seed"] == training["seed"]
    assert about["trained_on"]["utterances"] == len(trained)
    assert about["trained_on"]["speakers"] == 2
    assert about["trained_on"]["licence"] == "free"
    results = json.loads((finished.exp / "results.json").read_text())
    assert about["figures"] == results["systems"]["ML-VAE-sub"]
    assert about["versions"] == results["versions"]
    content = b"".join(path.read_bytes() for path in models["ml-vae-sub"].rglob("*.*"))
    for place in (finished.exp, finished.data, Path.home()):
        assert str(place).encode() not in content


def test_the_folder_says_how_other_words_are_read(finished, tmp_path, capsys):
    pytest.importorskip("espeakng_loader", reason="espeakng-loader is not installed")
    (tmp_path / "table.txt").write_text("n 9\naɪ 0 1\n", encoding="utf-8")
    command = ["pack", str(finished.exp / "ml-vae-sub"), str(tmp_path / "model")]
    assert cli.main([*command, "--g2p-table", str(tmp_path / "table.txt")]) == 1
    assert "--g2p-table goes with --g2p LANGUAGE" in capsys.readouterr().err
    assert cli.main([*command, "--g2p", "DE"]) == 1
    assert "'DE' is no language of espeak-ng" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    assert cli.main([*command, "--g2p", "de", "--g2p-table", str(tmp_path / "table.txt")]) == 0
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["text"]["g2p"] == {"language": "de", "table": {"n": ["9"], "aɪ": ["0", "1"]}}
    model = mlvae.load(tmp_path / "model", g2p=True)
    samples = np.concatenate([sine(0.15, 8000, 200 + 100 * digit) for digit in (1, 9, 0, 1, 9)])
    answer = model.localize_recording(samples, 8000, "one nein")
    assert [unit.symbol for unit in answer.units] == ["1", "9", "0", "1", "9"]
    with pytest.raises(ValueError, match=r"no unit for j, ɑː of espeak-ng \(de\): ja"):
        model.localize_recording(samples, 8000, "one ja")


# ---- What somebody else has put there


@pytest.fixture
def folder(models, tmp_path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(models["ml-vae-sub"], tmp_path / "model"))


def sign(folder: Path, **changes) -> None:
    """Make model.json fit files that were changed, as somebody would who means harm."""
    path = folder / "model.json"
    about = {**json.loads(path.read_text()), **changes}
    for name in about["files"]:
        if (folder / name).is_file():
            size = (folder / name).stat().st_size
            about["files"][name] = {"size": size, "sha256": file_digest(folder / name)}
    path.write_text(json.dumps(about))


def refused(folder: Path, capsys, match: str) -> None:
    """Reading it says why not in one line."""
    with pytest.raises(ValueError, match=match) as caught:
        mlvae.load(folder)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    capsys.readouterr()
    out = folder.parent / "out"
    assert cli.main(["localize", str(folder), str(folder.parent), str(out)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not out.exists()


class Harm:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_pickle_is_not_read(folder, capsys):
    mark = folder.parent / "mark"
    content = pickle.dumps(Harm(mark))
    weights = folder / "ml-vae-sub" / "model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(content)
    sign(folder)
    refused(folder, capsys, "model.safetensors is damaged or no safetensors file")
    weights.write_bytes(before)
    sign(folder)
    (folder / "model.pt").write_bytes(content)
    refused(folder, capsys, "model.pt is named as a pickle")
    assert not mark.exists()


def test_no_path_leads_out_of_the_folder(folder, capsys):
    outside = folder.parent / "outside.safetensors"
    shutil.copy(folder / "fa" / "model.safetensors", outside)
    about = json.loads((folder / "model.json").read_text())
    for name in ("../outside.safetensors", str(outside)):
        sign(folder, files={**about["files"], name: {"size": 1, "sha256": "0"}})
        refused(folder, capsys, "leads out of the folder")
    sign(folder, files=about["files"], system="../ml-vae")
    refused(folder, capsys, "cannot be the name of a system")
    sign(folder, system="ml-vae-sub")
    (folder / "fa" / "model.safetensors").unlink()
    (folder / "fa" / "model.safetensors").symlink_to(outside)
    sign(folder)
    refused(folder, capsys, "is a link")


def test_the_configuration_leads_to_no_other_and_makes_no_objects(folder, capsys):
    config = folder / "config.yaml"
    text = config.read_text()
    mark = folder.parent / "mark"
    for line, match in (
        (f"deltas: !!python/object/apply:os.mkdir ['{mark}']\n", "could not determine a construc"),
        ("base: ../outside.yaml\n", "where it must stand alone"),
        ("nonsense: 1\n", "there is no such setting"),
    ):
        config.write_text(line + text.removeprefix("deltas: false\n" if "deltas" in line else ""))
        sign(folder)
        refused(folder, capsys, match)
    assert not mark.exists()


def test_sizes_are_compared_before_memory_is_taken(folder, capsys):
    weights = folder / "ml-vae-sub" / "model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes((10 * 2**30).to_bytes(8, "little") + before[8:])
    sign(folder)
    refused(folder, capsys, "its header would have 10,737,418,240 bytes")
    header = {"a": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 8]}}
    content = json.dumps(header).encode()
    weights.write_bytes(len(content).to_bytes(8, "little") + content + b"12345678")
    sign(folder)
    refused(folder, capsys, "has other bytes than it needs")
    weights.write_bytes(before)
    config = folder / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("lstm_size: 24", "lstm_size: 100000"))
    sign(folder)
    refused(folder, capsys, "larger than the weights in the folder")
    config.write_text(text.replace("lstm_size: 24", "lstm_size: 25"))
    sign(folder)
    refused(folder, capsys, "not of this configuration")
    config.write_text(text)
    (folder / "tokens.txt").write_text("0 0\n1 1\n")
    sign(folder)
    refused(folder, capsys, "not of this configuration")


def test_what_was_damaged_or_is_of_another_version_is_named(folder, capsys):
    lexicon = folder / "lexicon.txt"
    lexicon.write_text(lexicon.read_text().replace("one", "two"))
    refused(folder, capsys, "lexicon.txt is damaged, or was changed")
    sign(folder, format=2)
    refused(folder, capsys, "format 2, this is mlvae")
    about = json.loads((folder / "model.json").read_text())
    sign(folder, format=1, features={**about["features"], "num_filters": 80})
    refused(folder, capsys, "features: num_filters: not as this mlvae")
    sign(folder, features=about["features"], kind="other")
    refused(folder, capsys, "there is no kind 'other'")
    (folder / "model.json").write_text("[" * 100_000)
    refused(folder, capsys, "is no JSON")
    (folder / "model.json").unlink()
    refused(folder, capsys, "is no model folder")


def test_other_versions_are_named_and_the_model_is_read(folder, capsys):
    about = json.loads((folder / "model.json").read_text())
    sign(folder, versions={**about["versions"], "k2": "1.0", "torch": ["\n"]})
    with pytest.warns(OtherVersions, match="packed with torch .*; k2 1.0, here"):
        assert mlvae.load(folder).table.symbols
    recordings = folder.parent / "in"
    recordings.mkdir()
    soundfile.write(recordings / "a.wav", np.random.RandomState(0).randn(8000) * 0.1, 8000)
    (recordings / "a.txt").write_text("one")
    out = folder.parent / "out"
    assert cli.main(["localize", str(folder), str(recordings), str(out)]) == 0
    assert "warning: packed with torch" in capsys.readouterr().out


def test_a_system_without_probabilities(prepared, tmp_path, models):
    prepared.systems = "two-pass-fa"
    assert prepared.run(3, 4, 5) == [0, 0, 0]
    folder = tmp_path / "model"
    assert cli.main(["pack", str(prepared.exp / "two-pass-fa"), str(folder)]) == 0
    answered = load_cuts(prepared.exp / "two-pass-fa" / "cuts_test.jsonl.gz")
    found = mlvae.load(folder).localize(plain(answered))
    for answer, cut in zip(found.answers, answered):
        assert answer.cut.supervisions[0].alignment == cut.supervisions[0].alignment
        assert answer.mean_p is None and len(answer.words) == len(answer.units)
        assert sum(word.num_flagged for word in answer.words) == answer.num_flagged
    write_manifest(tmp_path / "cuts.jsonl.gz", plain(answered))
    command = ["localize", str(folder), str(tmp_path / "cuts.jsonl.gz"), str(tmp_path / "out")]
    assert cli.main([*command, "--format", "csv,ctm,textgrid"]) == 0
    (header, first, *_) = (tmp_path / "out" / "words.csv").read_text().splitlines()
    assert dict(zip(header.split(","), first.split(",")))["p_mispronounced"] == ""
    assert len((tmp_path / "out" / "units.ctm").read_text().splitlines()[0].split()) == 5


def test_a_fine_tuned_wav2vec(prepared, tmp_path):
    """Its checkpoint stays where it is: what was trained of it is in the folder."""
    checkpoint = write_checkpoint(tmp_path / "tiny.pth")
    config = tmp_path / "w2v.yaml"
    config.write_text(
        f"base: {prepared.config}\n"
        f"systems: {{w2v-ctc: {{checkpoint: {checkpoint}, epochs: 1, layer_drop: 0.0}}}}\n"
    )
    prepared.config, prepared.systems = config, "w2v-ctc"
    assert prepared.run(3, 4, 5) == [0, 0, 0]
    folder = tmp_path / "model"
    assert cli.main(["pack", str(prepared.exp / "w2v-ctc"), str(folder)]) == 0
    checkpoint.unlink()
    assert str(tmp_path).encode() not in b"".join(f.read_bytes() for f in folder.rglob("*.*"))
    answered = load_cuts(prepared.exp / "w2v-ctc" / "cuts_test.jsonl.gz")
    found = mlvae.load(folder).localize(plain(answered))
    assert found.skipped == {} and len(found.answers) == len(answered) > 0
    for answer, cut in zip(found.answers, answered):
        assert answer.cut.supervisions[0].alignment == cut.supervisions[0].alignment
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("checkpoint: ''", "checkpoint: ../tiny.pth"))
    sign(folder)
    with pytest.raises(ValueError, match="systems.w2v-ctc.checkpoint leads out of the folder"):
        mlvae.load(folder)


def test_metadata_without_meaning_is_one_line(folder, capsys):
    from safetensors.torch import load_file, save_file

    weights = folder / "ml-vae-sub" / "model.safetensors"
    save_file(load_file(weights), weights, {"json": json.dumps({"decoding": {"no": 1}})})
    sign(folder)
    refused(folder, capsys, "TypeError")


def test_only_what_was_trained_is_packed(finished, tmp_path, capsys):
    for folder, match in (
        (finished.exp / "none", "no system that is trained to its end"),
        (finished.exp / "fa", "fa flags nothing"),
    ):
        config = ["--config", str(finished.config)]
        assert cli.main(["pack", str(folder), str(tmp_path / "out"), *config]) == 1
        assert match in capsys.readouterr().err
    old = shutil.copytree(finished.exp / "ml-vae", tmp_path / "old")
    (old / "config.yaml").unlink()
    assert cli.main(["pack", str(old), str(tmp_path / "out")]) == 1
    assert "say the configuration of the training with --config" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    command = ["pack", str(finished.exp / "ml-vae"), str(tmp_path / "out")]
    assert cli.main(command) == 1
    assert "not made here" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == ["mine.txt"]
