"""An accent or vowel sign that is a sign of its own ended the word and was lost: a word of Hindi
fell to pieces without its vowels. A curved apostrophe in a lexicon's file was never looked up.
"""

from __future__ import annotations

import pytest

from mlvae.data.lexicon import Lexicon
from mlvae.data.text import words_of_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nai\u0308ve", ["na\u00efve"]),
        ("हिन्दी में, लिखा!", ["हिन्दी", "में", "लिखा"]),
        ("q\u0303 'q\u0303'q\u0303'", ["q\u0303", "'q\u0303'q\u0303'"]),
        ("\u0301 - \u0301a", ["a"]),
    ],
)
def test_signs_belong_to_their_letter(text, words):
    assert words_of_text(text) == words


def test_a_lexicon_is_spelt_as_texts_are(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("xylo\u2019frob Z AY L OW\nnai\u0308vex N AA IY V\n", encoding="utf-8")
    lexicon = Lexicon.load(path)
    for text in ("xylo\u2019frob", "xylo'frob", "na\u00efvex", "nai\u0308vex"):
        (word,) = words_of_text(text)
        assert lexicon.find(word)
