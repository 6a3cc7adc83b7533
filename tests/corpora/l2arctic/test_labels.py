from __future__ import annotations

import pytest

from mlvae.corpora.l2arctic.labels import read_label
from mlvae.data.lexicon import ERR, PHONES, SIL, fold_phone


def test_37_phones_are_left_of_39():
    cmu = "aa ae ah ao aw ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh"
    folded = {fold_phone(phone) for phone in f"{cmu} uw v w y z zh".split()}
    assert folded == set(PHONES)
    assert len(PHONES) == 37
    assert [fold_phone(phone) for phone in ("AO2", "zh", "AX0", "spn", "SP", "err")] == (
        ["aa", "sh", "ah", ERR, SIL, ERR]
    )


@pytest.mark.parametrize(
    ("label", "canonical", "perceived", "tag", "error", "tidy"),
    [
        ("AH0", "ah", "ah", "", "", True),
        ("AH0,AX,s", "ah", "ah", "s", "", True),
        ("AO1,AA,s", "aa", "aa", "s", "", True),
        ("D,T,s", "d", "t", "s", "s", True),
        ("D,sil,d", "d", SIL, "d", "d", True),
        ("sil,K,a", SIL, "k", "a", "a", True),
        ("ER0,err,s", "er", ERR, "s", "s", True),
        (" ah0 , ax, s", "ah", "ah", "s", "", False),
        ("D,T,s ", "d", "t", "s", "s", False),
        ("K*", "k", "k", "", "", False),
        ("R,R*,s", "r", "r", "s", "", False),
        ("T_", "t", "t", "", "", False),
        ("AH)", "ah", "ah", "", "", False),
        ("d,t,S", "d", "t", "s", "s", False),
        ("", SIL, SIL, "", "", True),
        ("   ", SIL, SIL, "", "", False),
        ("sil", SIL, SIL, "", "", True),
        ("sp", SIL, SIL, "", "", True),
        ("SIL", SIL, SIL, "", "", True),
        ("spn", ERR, ERR, "", "", True),
        ("D,T", "d", "t", "s", "s", False),
        ("D,sil", "d", SIL, "d", "d", False),
        ("sil,K", SIL, "k", "a", "a", False),
        ("D,D", "d", "d", "", "", False),
        ("D,sil,s", "d", SIL, "d", "d", False),
        ("D,T,d", "d", "t", "s", "s", False),
        ("D,T,s,", "d", "t", "s", "s", False),
        ("D,,d", "d", SIL, "d", "d", True),
    ],
)
def test_labels_are_read_as_they_are_meant(label, canonical, perceived, tag, error, tidy):
    read = read_label(label)
    assert (read.canonical, read.perceived, read.tag) == (canonical, perceived, tag)
    assert (read.error, read.tidy) == (error, tidy)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("QQ", "'QQ' is no phone"),
        ("AH3", "'AH3' is no phone"),
        ("D,T,x", "'x' is no error type"),
        ("D,T,s,s", "4 parts"),
        ("D,,s", "lacks a phone"),
        (",D", "lacks a phone"),
        ("A H", "'A H' is no phone"),
        ("*", "'\\*' is no phone"),
    ],
)
def test_what_means_nothing_is_refused_by_name(label, reason):
    with pytest.raises(ValueError, match=f"label '.*{reason}"):
        read_label(label)
