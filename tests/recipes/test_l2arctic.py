"""Stage 0 of the recipe l2arctic on trees of the corpus's layout, tidy and not."""

from __future__ import annotations

import json

import pytest
from lhotse import SupervisionSet

from mlvae.data.dataset import load_cuts
from mlvae.data.manifests import SPLITS
from mlvae.score.reference import read_reference
from tests.corpora.l2arctic.tree import (
    NUM_UNANNOTATED,
    READ,
    SKIPPED,
    STRAYS,
    SUITCASES,
    dog,
    write_tidy,
    write_untidy,
    write_utterance,
)
from tests.data.conftest import load_script

prepare = load_script("recipes/l2arctic/prepare.py")
units_stage = load_script("local/units.py")
fbank_stage = load_script("local/fbank.py")
#: The speakers of these trees have one voice.
SAME_AUDIO = ("--allow-shared-recordings", "true")


def run(corpus_dir, data_dir, *options):
    return prepare(["--corpus-dir", str(corpus_dir), "--data-dir", str(data_dir), *options])


def load_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def reference_of_all(data_dir):
    return {item.id: item for item in SupervisionSet.from_file(data_dir / "reference.jsonl.gz")}


def errors(item):
    """(word, canonical, perceived) of the units that are wrong."""
    tiers = item.alignment["canonical"], item.alignment["perceived"], item.custom["word_of_unit"]
    return [(word, a.symbol, b.symbol) for a, b, word in zip(*tiers) if a.symbol != b.symbol]


@pytest.fixture(scope="module")
def tidy(tmp_path_factory):
    return write_tidy(tmp_path_factory.mktemp("tidy") / "l2arctic")


@pytest.fixture(scope="module")
def untidy(tmp_path_factory):
    """The tree, and what stage 0 made of it and said."""
    folder = tmp_path_factory.mktemp("untidy")
    return write_untidy(folder / "l2arctic_release_v5.0"), folder / "data"


@pytest.fixture(scope="module")
def prepared(untidy):
    root, data = untidy
    assert run(root, data, "--unknown-words", "skip") == 0
    return root, data


def test_everything_is_read_or_skipped_with_file_and_reason(untidy, capsys):
    root, data = untidy
    assert run(root, data, "--unknown-words", "skip") == 0
    out = capsys.readouterr().out
    skipped = {record["id"]: record for record in lines(data / "skipped.jsonl")}
    assert set(skipped) == (
        {f"aba-{stem}" for stem in SKIPPED} | {f"ABA/{name}" for name in STRAYS}
    ) | {"xyz-arctic_a0001"}
    for stem, (_, reason) in SKIPPED.items():
        record = skipped[f"aba-{stem}"]
        assert reason in record["reason"]
        assert stem in record["source"]
    for name in STRAYS:
        assert skipped[f"ABA/{name}"]["source"] == str(root / "ABA" / name)
    num_done = len(READ) + 2 * 2
    total = num_done + len(skipped)
    assert f"{total} in = {num_done} done + {len(skipped)} skipped" in out
    assert f"{NUM_UNANNOTATED} recordings without annotation, {len(SUITCASES)} of the suit" in out


def test_untidy_annotation_is_read_as_it_is_meant(prepared):
    reference = reference_of_all(prepared[1])
    found = {item.id[len("aba-") :]: item for item in reference.values() if item.speaker == "ABA"}
    assert set(found) == set(READ)
    # A single label of another phone is what the annotators had in mind: correct.
    assert {stem: errors(item) for stem, item in found.items() if errors(item)} == {
        "arctic_a0003": [(3, "g", "-")],
        "arctic_a0005": [(0, "iy", "err")],
        "arctic_a0007": [(0, "iy", "eh")],
        "arctic_a0009": [(3, "g", "k")],
        "arctic_a0015": [(0, "sh", "s"), (3, "g", "-")],
    }
    for item in found.values():
        symbols = [unit.symbol for unit in item.alignment["canonical"]]
        assert symbols == ["sh", "iy", "hh", "ae", "d", "ah", "d", "aa", "g"]
        ends = [unit.end for unit in item.alignment["canonical"]]
        assert ends == sorted(ends)
        assert ends[-1] == pytest.approx(1.0, abs=1e-3)
    added = found["arctic_a0004"].custom["insertions"]
    assert [(item["symbol"], item["word"]) for item in added] == [("k", 3)]


def test_times_that_overlap_or_pass_the_end_are_made_right(prepared):
    found = reference_of_all(prepared[1])
    overlap = found["aba-arctic_a0025"].alignment["canonical"]
    assert [unit.start for unit in overlap][:3] == pytest.approx([0.1, 0.185, 0.3])
    assert overlap[0].end == pytest.approx(0.185)
    longer = found["aba-arctic_a0024"]
    assert max(unit.end for unit in longer.alignment["canonical"]) <= longer.duration
    repairs = {
        (record["id"], record["kind"]): record for record in lines(prepared[1] / "repairs.jsonl")
    }
    assert repairs["aba-arctic_a0025", "overlap"]["time"] == pytest.approx(0.185)
    assert "aba-arctic_a0024" in [name for name, kind in repairs if kind == "past the end"]
    assert repairs["aba-arctic_a0006", "label"]["what"] == "'ah0 , ax, s' read as ah"
    assert not any(name == "aba-arctic_a0001" for name, _ in repairs)


def test_totals_of_the_annotation_add_up(prepared):
    data = prepared[1]
    totals = load_json(data / "annotation.json")
    num_utterances = len(READ) + 4
    # 2 tidy utterances of 4 have a substitution and a deletion.
    assert totals["labels"]["substitutions"] == 6 + 2
    assert totals["labels"]["deletions"] == 2 + 2
    assert totals["labels"]["insertions"] == 1
    assert sum(totals["labels"].values()) == num_utterances * 11 + 1
    assert sum(totals["labels"].values()) == sum(totals["folded"].values())
    assert totals["folded"]["substitutions"] == 6 + 2 - 2  # AH0,AX,s twice
    units = totals["units"]
    assert units["correct"] + units["substitutions"] + units["deletions"] == num_utterances * 9
    assert units["insertions apart"] == 1
    about = load_json(data / "corpus.json")
    assert (about["title"], about["synthetic"]) == ("L2-ARCTIC", False)
    assert [about["counts"][split]["utterances"] for split in SPLITS] == [len(READ), 2, 2]


def test_recordings_of_any_rate_give_features(prepared):
    data = prepared[1]
    assert fbank_stage(["--data-dir", str(data), *SAME_AUDIO]) == 0
    cuts = {cut.id: cut for cut in load_cuts(data / "fbank" / "cuts_train.jsonl.gz")}
    assert len(cuts) == len(READ)
    assert {cut.sampling_rate for cut in cuts.values()} == {16000}
    assert cuts["aba-arctic_a0027"].num_frames == cuts["aba-arctic_a0001"].num_frames == 110


def test_a_cut_says_what_training_and_scoring_by_word_need(tidy, tmp_path):
    assert run(tidy, tmp_path) == 0
    for split, speaker in zip(SPLITS, ("ABA", "HJK", "NJS")):
        cuts = load_cuts(tmp_path / "manifests" / f"cuts_{split}.jsonl.gz")
        assert [cut.supervisions[0].speaker for cut in cuts] == [speaker] * 2
        for cut in cuts:
            (supervision,) = cut.supervisions
            assert supervision.custom["words"] == ["she", "had", "a", "dog"]
            assert supervision.custom["word_of_unit"] == [0, 0, 1, 1, 1, 2, 3, 3, 3]
            assert supervision.custom["pronunciations"][2] == [["ah"], ["ey"]]
            first = [phones[0] for phones in supervision.custom["pronunciations"]]
            assert sum(first, []) == supervision.custom["units"]
            assert supervision.alignment is None
    reference = read_reference(tmp_path / "reference.jsonl.gz")
    assert reference.utterances == ["njs-arctic_a0001", "njs-arctic_a0002"]
    assert reference.positive.sum() == 2
    assert set(reference.sources) == set(reference.utterances)


def test_manifests_do_not_depend_on_the_annotators_verdict(tmp_path):
    """Without their errors the cuts are the same: only reference tells them."""
    other = tmp_path / "other"
    for speaker in ("ABA", "HJK", "NJS"):
        for number in (1, 2):
            write_utterance(tmp_path / "one", speaker, f"arctic_a{number:04d}", dog(SH="SH,S,s"))
            write_utterance(other, speaker, f"arctic_a{number:04d}", dog(G="D,K,s"))
    contents = []
    for root in (tmp_path / "one", other):
        data = tmp_path / f"{root.name}-data"
        assert run(root, data) == 0
        contents.append(
            [
                cut.supervisions[0].to_dict()
                for split in SPLITS
                for cut in load_cuts(data / "manifests" / f"cuts_{split}.jsonl.gz")
            ]
        )
    assert contents[0] == contents[1]


def test_protocol_annotation_has_the_annotators_units(tidy, tmp_path):
    assert run(tidy, tmp_path, "--protocol", "annotation") == 0
    cut = next(iter(load_cuts(tmp_path / "manifests" / "cuts_test.jsonl.gz")))
    units = ["sil", "sh", "iy", "hh", "ae", "d", "ah", "d", "aa", "g", "sil"]
    assert cut.supervisions[0].custom["units"] == units
    assert "words" not in cut.supervisions[0].custom
    reference = read_reference(tmp_path / "reference.jsonl.gz")
    assert reference.canonical[:11] == units
    assert reference.perceived[:11] == [
        "sil",
        "s",
        "iy",
        "hh",
        "ae",
        "d",
        "ah",
        "d",
        "aa",
        "-",
        "sil",
    ]
    assert load_json(tmp_path / "corpus.json")["protocol"] == "annotation"


def test_tokens_come_in_stage_2_and_their_reference_is_of_words(tidy, tmp_path):
    assert run(tidy, tmp_path, "--unit", "bpe") == 0
    assert fbank_stage(["--data-dir", str(tmp_path), *SAME_AUDIO]) == 0
    options = ["--data-dir", str(tmp_path), "--vocab-size", "14"]
    assert units_stage(options) == 0
    before = (tmp_path / "fbank" / "cuts_test.jsonl.gz").read_bytes()
    assert units_stage(options) == 0
    assert (tmp_path / "fbank" / "cuts_test.jsonl.gz").read_bytes() == before
    cut = next(iter(load_cuts(tmp_path / "fbank" / "cuts_test.jsonl.gz")))
    custom = cut.supervisions[0].custom
    assert "".join(custom["units"]) == "▁she▁had▁a▁dog"
    starts = [unit.startswith("▁") for unit in custom["units"]]
    new_word = [True] + [b > a for a, b in zip(custom["word_of_unit"], custom["word_of_unit"][1:])]
    assert starts == new_word
    reference = read_reference(tmp_path / "reference.jsonl.gz")
    assert reference.canonical[:4] == ["she", "had", "a", "dog"]
    assert reference.positive.tolist() == [True, False, False, True] + [False] * 4


def test_words_of_phones_and_of_tokens_are_judged_alike(tidy, tmp_path):
    verdicts = []
    for unit in ("phone", "bpe"):
        assert run(tidy, tmp_path / unit, "--unit", unit) == 0
        found = reference_of_all(tmp_path / unit)
        verdicts.append({name: item.custom["words"] for name, item in found.items()})
    assert verdicts[0] == verdicts[1]
    assert any(word["marked"] for word in verdicts[0]["aba-arctic_a0001"])
