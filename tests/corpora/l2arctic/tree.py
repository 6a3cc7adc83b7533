"""Trees of L2-ARCTIC's layout, tidy and untidy, with what stage 0 should make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlvae.data.audio import write_wav
from tests.data.conftest import sine

STEP = 0.1  # seconds a phone
DOG = "She had a dog."
DOG_WORDS = (
    ("she", ("SH", "IY1")),
    ("had", ("HH", "AE1", "D")),
    ("a", ("AH0",)),
    ("dog", ("D", "AO1", "G")),
)
Words = Sequence[tuple[str, Sequence[str]]]


def dog(**changes: str) -> Words:
    """The words of `DOG`; ``HH="HH,sil,d"`` changes the label of the phone HH, wherever it is."""
    return tuple(
        (word, tuple(changes.get(phone.rstrip("012"), phone) for phone in phones))
        for word, phones in DOG_WORDS
    )


def tiers(words: Words, edge: str = "sil") -> dict[str, list[tuple[float, float, str]]]:
    """Tiers ``words`` and ``phones``; silence of `STEP` at both edges."""
    phones, word_tier, now = [(0.0, STEP, edge)], [(0.0, STEP, "")], STEP
    for word, labels in words:
        start = now
        for label in labels:
            phones.append((now, now + STEP, label))
            now += STEP
        word_tier.append((start, now, word))
    phones.append((now, now + STEP, edge))
    word_tier.append((now, now + STEP, ""))
    return {"words": word_tier, "phones": phones}


def textgrid(
    content: dict[str, list[tuple[float, float, str]]], short: bool = False, start: float = 0
) -> str:
    """A TextGrid as Praat writes it, whatever its tiers hold; the axis begins at ``start``."""
    end = max(interval[1] for intervals in content.values() for interval in intervals)
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    form = (lambda name, value: str(value)) if short else (lambda name, value: f"{name} = {value} ")
    lines += [form("xmin", start), form("xmax", f"{end:.4f}")]
    lines += ["<exists>" if short else "tiers? <exists> ", form("size", len(content))]
    lines += [] if short else ["item []: "]
    for number, (name, intervals) in enumerate(content.items(), start=1):
        lines += [] if short else [f"    item [{number}]:"]
        lines += [form("class", '"IntervalTier"'), form("name", f'"{name}"')]
        lines += [form("xmin", start), form("xmax", f"{end:.4f}")]
        lines += [form("intervals: size", len(intervals))]
        for place, (first, stop, label) in enumerate(intervals, start=1):
            lines += [] if short else [f"        intervals [{place}]:"]
            lines += [form("xmin", f"{first:.4f}"), form("xmax", f"{stop:.4f}")]
            doubled = label.replace('"', '""')
            lines += [form("text", f'"{doubled}"')]
    return "\n".join(lines) + "\n"


def write_utterance(
    root: Path,
    speaker: str,
    stem: str,
    words: Words = DOG_WORDS,
    text: str = DOG,
    *,
    sampling_rate: int = 16000,
    encode: Callable[[str], bytes] = str.encode,
    edge: str = "sil",
    grid: str | None = None,
    suffix: str = ".wav",
) -> None:
    """One utterance's recording, transcript, annotation and forced alignment."""
    home = root / speaker
    for folder in ("wav", "transcript", "textgrid", "annotation"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    content = tiers(words, edge)
    samples = sine(content["phones"][-1][1], sampling_rate)
    write_wav(home / "wav" / f"{stem}{suffix}", samples, sampling_rate)
    (home / "transcript" / f"{stem}.txt").write_text(text + "\n", encoding="utf-8")
    grid = textgrid(content) if grid is None else grid
    (home / "annotation" / f"{stem}.TextGrid").write_bytes(encode(grid))
    (home / "textgrid" / f"{stem}.TextGrid").write_text(textgrid(tiers(DOG_WORDS)))


def write_tidy(root: Path, speakers: Sequence[str] = ("ABA", "HJK", "NJS"), count: int = 2) -> Path:
    """Some utterances of each speaker, one in two with a substitution and a deletion."""
    for speaker in speakers:
        for number in range(1, count + 1):
            words = dog(SH="SH,S,s", G="G,sil,d") if number % 2 else DOG_WORDS
            write_utterance(root, speaker, f"arctic_a{number:04d}", words)
    return root


def _shift(start: float) -> str:
    """The second phone begins earlier than the first one ends."""
    content = tiers(DOG_WORDS)
    before = content["phones"][2]
    content["phones"][2] = (start, *before[1:])
    return textgrid(content)


def _longer() -> str:
    content = tiers(DOG_WORDS)
    for name, label in (("words", ""), ("phones", "sil")):
        start, end, _ = content[name][-1]
        content[name][-1] = (start, end + 0.3, label)
    return textgrid(content)


def _beyond() -> str:
    content = tiers(DOG_WORDS)
    end = content["phones"][-1][1]
    content["phones"].append((end, end + STEP, "K"))
    return textgrid(content)


#: How ABA's utterances are untidy, and still read as meant: by stem, options of write_utterance.
READ = {
    "arctic_a0001": {},
    "arctic_a0002": {"words": dog(AH="AH0,AX,s")},
    "arctic_a0003": {"words": dog(G="D,sil,d")},
    "arctic_a0004": {"words": (*DOG_WORDS[:3], ("dog", ("D", "AO1", "G", "sil,K,a")))},
    "arctic_a0005": {"words": dog(IY="ER0,err,s")},
    "arctic_a0006": {"words": dog(AH=" ah0 , ax, s")},
    "arctic_a0007": {"words": dog(SH="SH ", IY="IY1,EH , s ")},
    "arctic_a0008": {"words": dog(G="K*", D="T_", AH="AH)")},
    "arctic_a0009": {"words": dog(SH="sh", G="g,k,S")},
    "arctic_a0010": {"edge": ""},
    "arctic_a0011": {"edge": "  "},
    "arctic_a0012": {"edge": "sp"},
    "arctic_a0013": {"edge": "SIL"},
    "arctic_a0014": {"words": dog(HH="spn")},
    "arctic_a0015": {"words": dog(SH="SH,S", G="G,sil")},
    "arctic_a0016": {"encode": lambda text: text.encode("utf-8-sig")},
    "arctic_a0017": {"encode": lambda text: text.encode("utf-16")},
    "arctic_a0018": {"encode": lambda text: b"\xfe\xff" + text.encode("utf-16-be")},
    "arctic_a0019": {"encode": lambda text: text.encode("utf-16-le")},
    "arctic_a0020": {"encode": lambda text: text.encode("utf-16-be")},
    "arctic_a0021": {"encode": lambda text: text.replace("\n", "\r\n").encode()},
    "arctic_a0022": {"grid": textgrid(tiers(DOG_WORDS), short=True)},
    "arctic_a0023": {"grid": textgrid(tiers((*DOG_WORDS[:3], ('"dog"', ("D", 'AO1"', "G")))))},
    "arctic_a0024": {"grid": _longer()},
    "arctic_a0025": {"grid": _shift(0.185)},
    "arctic_a0026": {"suffix": ".WAV"},
    "arctic_a0027": {"sampling_rate": 44100},
}

#: Those that cannot be read, and what the reason says.
SKIPPED = {
    "arctic_b0001": ({"grid": textgrid({"words": tiers(DOG_WORDS)["words"]})}, "no tier 'phones'"),
    "arctic_b0002": ({"words": dog(IY="IY1,EH,x")}, "at 0.200 s: label 'IY1,EH,x'"),
    "arctic_b0003": ({"words": dog(D="D,QQ,s")}, "at 0.500 s: label 'D,QQ,s'"),
    "arctic_b0004": ({"grid": _beyond()}, "'K' at 1.100 s is after the end of the recording"),
    "arctic_b0005": ({"grid": textgrid(tiers(DOG_WORDS))[:-150]}, "cut off: tier 'phones'"),
    "arctic_b0006": ({"grid": "lunch at one"}, "not a TextGrid"),
    "arctic_b0007": ({"text": " "}, "empty transcript"),
    "arctic_b0008": ({}, "no recording"),
    "arctic_b0009": ({}, "no transcript"),
    "arctic_b0010": ({}, "audio is shorter than its header says"),
    "arctic_b0012": (
        {"grid": _shift(0.15)},
        "'SH' (0.100 s to 0.200 s) and 'IY1' (0.150 s to 0.300 s) overlap by 0.050 s",
    ),
    "arctic_b0011": ({"text": "She had a xylofrob."}, "not in the lexicon: xylofrob"),
}

STRAYS = ("transcript/README.txt", "annotation/.DS_Store", "wav/notes.txt", "README.txt")
NUM_UNANNOTATED = 3
SUITCASES = ("aba", "njs")


def write_untidy(root: Path) -> Path:
    """Everything above under speaker ABA, tidy speakers for the other splits, and the suitcase."""
    for stem, options in READ.items():
        write_utterance(root, "ABA", stem, **options)
    for stem, (options, _) in SKIPPED.items():
        write_utterance(root, "ABA", stem, **options)
    home = root / "ABA"
    (home / "wav" / "arctic_b0008.wav").unlink()
    (home / "transcript" / "arctic_b0009.txt").unlink()
    cut_off = home / "wav" / "arctic_b0010.wav"
    cut_off.write_bytes(cut_off.read_bytes()[:-1000])
    for name in STRAYS:
        (home / name).write_text("of no utterance\n")
    for number in range(NUM_UNANNOTATED):
        stem = f"arctic_b{100 + number:04d}"
        write_utterance(root, "ABA", stem)
        (home / "annotation" / f"{stem}.TextGrid").unlink()
    for name in ("README.md", "LICENSE", "PROMPTS"):
        (root / name).write_text("of the corpus\n")
    write_utterance(root, "XYZ", "arctic_a0001")  # no speaker of the corpus
    for name in SUITCASES:
        write_utterance(root, "suitcase_corpus", name)
    return write_tidy(root, ("HJK", "NJS"))
