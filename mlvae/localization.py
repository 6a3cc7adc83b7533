"""`mlvae localize`: a model's answers for any number of recordings, in files.

Recordings are worked on in chunks, by several processes where that is asked for. The answers of a
chunk are written whole, as a part, when it is done; a run that was killed goes on behind its parts.
At the end the files that were asked for are made of all parts, and the parts are removed.

A shard (:mod:`mlvae.shard`) does every n-th chunk and leaves its parts. As chunks are the same
whoever works on them, so are the answers. The command without a shard joins those that are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lhotse import MonoCut, Recording
from lhotse.audio import AudioSource
from lhotse.cut.set import deserialize_cut
from lhotse.utils import fastcopy

from mlvae.answers import Answer, answer_of
from mlvae.data.g2p import Pronunciation, write_made
from mlvae.data.manifests import content_of
from mlvae.data.recordings import Found, Utterance
from mlvae.device import give_back_memory, keep_no_kernels
from mlvae.errors import one_line, with_type
from mlvae.made import Record
from mlvae.model import Model, OtherVersions, load
from mlvae.model_folder import ABOUT, other_versions, words_of_cuts
from mlvae.plausibility import FlaggedUnits, count_flagged
from mlvae.portions import portions
from mlvae.report.exports import FILES, TEXTGRIDS, write_answer_textgrid, write_exports
from mlvae.report.textgrid import remove_other_textgrids, textgrid_paths
from mlvae.shard import Shard, found_shards, not_done, remove_shards
from mlvae.stage import Progress, StageReport, atomic_path, log, stage_folder

STAGE = "localize"
PARTS, RUN = "parts", "run.json"

#: The number of a chunk, and a line of JSON for each of its utterances.
_Chunk = tuple[int, list[dict[str, Any]]]


@dataclass(frozen=True)
class Options:
    """How recordings are localised."""

    formats: tuple[str, ...]  # of :data:`mlvae.report.exports.FORMATS`
    num_jobs: int = 1  # processes
    channel: int = 0  # of recordings of several, the first being 0
    allow_commands: bool = False  # whether shell commands that a manifest names for audio are run
    lexicon: Path | None = None  # pronunciations besides those of the model; None: none
    device: str = "cpu"  # ``auto``, ``cpu`` or ``cuda``
    g2p: bool = False  # whether words that are in no lexicon are read by rules
    # the part of the recordings to localise; None: all, or shards that are there are joined
    shard: Shard | None = None


def localize(model: Path, found: Found, folder: Path, options: Options) -> int:
    """Localise recordings and write what was found to a folder.

    Args:
        model: a model folder.
        found: the recordings.
        folder: to write, see docs/formats.md.
        options: how.

    Returns:
        The exit status: 0, 1 where some utterances were skipped, 2 where all were.

    Raises:
        ValueError: the model cannot be used, the folder holds what was not made here, or shards
            that are not done to the end or are of another run.
        OSError: something cannot be read or written.
    """
    torch.set_num_threads(1)  # one recording is too small to share; answers do not depend on it
    keep_no_kernels()  # processes of --num-jobs inherit it
    model = Path(model).resolve()
    ready = _read(model, options)  # before any other work
    if options.shard is not None:
        return _localize_shard(model, ready, found, folder, options)
    outputs = [folder / name for one in options.formats for name in FILES[one]]
    with stage_folder(STAGE, folder, outputs) as record:
        report = StageReport(STAGE, folder)
        _say(ready, found, STAGE)
        if "textgrid" in options.formats:
            ids = (utterance.id for utterance in found.items())
            record.check(textgrid_paths(ids, folder / TEXTGRIDS).values())
        for name, reason, place in found.skipped:
            report.skip(name, reason, place=place)
        shards = _shards(model, found, folder, options)
        parts = _Parts(folder / PARTS, record, _identity(model, found, options), found)
        if shards:
            done = _of_shards(shards, [number for number, _ in parts.missing()], folder)
        else:
            done = _done(model, ready, parts, options)
        if "textgrid" in options.formats:
            done = _with_textgrids(done, folder / TEXTGRIDS, record)
        parts.fill(done, STAGE)
        status = _finish(parts, folder, options, record, report)
        remove_shards(shards.values())
        parts.remove()  # last: until then the same command ends what was begun
        return status


def _say(ready: Model, found: Found, stage: str) -> None:
    """Say in the log what is done, and by which model."""
    trained = ready.about["trained_on"]
    log(
        f"{stage}: {found.count} utterances in a {found.kind}, by {ready.about['system']} "
        f"({trained.get('title')!s:.60}, {trained.get('hours')!s:.10} hours)"
    )
    if others := other_versions(ready.about["versions"]):
        log(f"{stage}: warning: {others}")


def _localize_shard(model: Path, ready: Model, found: Found, folder: Path, options: Options) -> int:
    """Leave the parts of a shard in its own folder; the exit status, 0 where it has nothing."""
    shard = options.shard
    stage, home = f"{STAGE} --shard {shard}", shard.folder(folder)
    with stage_folder(stage, home, reads=[folder]) as record:
        report = StageReport(STAGE, home)
        _say(ready, found, stage)
        parts = _Parts(home / PARTS, record, _identity(model, found, options), found, shard)
        parts.fill(_done(model, ready, parts, options), stage)
        for index, (name, reason, place) in enumerate(found.skipped):
            if shard.takes(index):
                report.skip(name, reason, place=place)
        for line in parts.lines():
            if "reason" in line:
                report.skip(line["id"], line["reason"], place=line["place"])
            else:
                report.done()
        report.finish()
        if not report.num_done and report.skipped:
            return 2
        return 1 if report.skipped else 0


def _shards(model: Path, found: Found, folder: Path, options: Options) -> dict[Shard, Path]:
    """The shards that have done something of a run, with their folders."""
    shards = found_shards(folder)
    identity = _identity(model, found, replace(options, shard=next(iter(shards), None)))
    for shard, home in shards.items():
        if not _is_run(home / PARTS, Record(home), identity):
            raise ValueError(
                f"{home}: of another run, as recordings, model or options were others: give those, "
                f"run it again with --shard {shard}, or delete the folder"
            )
    return shards


def _of_shards(shards: dict[Shard, Path], numbers: Sequence[int], folder: Path) -> Iterator[_Chunk]:
    """Lines of chunks that shards have done, with the numbers of the chunks.

    Raises:
        ValueError: some are not done; names their shards.
    """
    count = next(iter(shards)).count
    records = {shard.number: Record(home) for shard, home in shards.items()}
    paths: dict[int, Path] = {}
    for number in numbers:
        record = records.get(number % count + 1)
        if record is not None and record.is_ours(path := _path(record.folder / PARTS, number)):
            paths[number] = path
    if left := {Shard(count, number % count + 1) for number in numbers if number not in paths}:
        raise not_done(folder, left)
    log(f"{STAGE}: joins {count} shards")
    return ((number, list(_lines(path))) for number, path in paths.items())


def _read(folder: Path, options: Options) -> Model:
    """The model; other versions than it was packed with are a line in the log, for who asks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherVersions)
        return load(folder, options.device, options.lexicon, options.g2p)


def _finish(
    parts: _Parts, folder: Path, options: Options, record: Record, report: StageReport
) -> int:
    """Make the files that were asked for of all parts; the exit status."""
    counts = FlaggedUnits(0, 0, 0)
    wanted: set[Path] = set()
    made: dict[str, Pronunciation] = {}
    for line in parts.lines():
        if "cut" in line:
            cut = deserialize_cut(line["cut"])
            own = count_flagged([cut])
            if words := cut.supervisions[0].custom.get("g2p"):
                known = words_of_cuts([cut])
                made.update({word: known[word][0] for word in words})
            counts = FlaggedUnits(
                counts.num_units + own.num_units,
                counts.num_flagged + own.num_flagged,
                counts.num_deleted + own.num_deleted,
            )
            if "reason" not in line:
                wanted.update(textgrid_paths([cut.id], folder / TEXTGRIDS).values())
        if "reason" in line:
            report.skip(line["id"], line["reason"], place=line["place"])
        else:
            report.done()
    write_exports(folder, options.formats, parts.answers)
    write_made(made, folder, record, STAGE)
    if "textgrid" not in options.formats:
        wanted = set()
    remove_other_textgrids(record, folder / TEXTGRIDS, wanted)
    for name in (name for one in FILES if one not in options.formats for name in FILES[one]):
        if record.is_ours(folder / name):  # of an earlier run, with other formats
            record.remove(folder / name)
    log(f"{STAGE}: {counts.line()}")
    for warning in counts.warnings():
        log(f"{STAGE}: warning: {warning}")
    report.finish()
    if not report.num_done:
        return 2
    return 1 if report.skipped else 0


def _identity(model: Path, found: Found, options: Options) -> str:
    """64 hexadecimal digits that are equal for runs which may go on from each other's parts."""
    lexicon = None if options.lexicon is None else options.lexicon.read_bytes()
    digest = hashlib.sha256()
    for content in ((model / ABOUT).read_bytes(), lexicon or b""):
        digest.update(hashlib.sha256(content).digest())
    formats = () if options.shard else options.formats  # shards only leave parts
    said = [found.digest, formats, options.channel, options.allow_commands, options.device]
    said.append(options.g2p)
    digest.update(json.dumps(said).encode())
    return digest.hexdigest()


def chunks(utterances: Iterable[Utterance]) -> Iterator[list[Utterance]]:
    """Utterances in portions, always the same of the same utterances."""
    return portions(utterances, lambda one: one.seconds, lambda one: one.speaker)


# ---- Parts


def _path(folder: Path, number: int) -> Path:
    """The file of a chunk."""
    return folder / f"{number:06d}.jsonl"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _is_run(folder: Path, record: Record, identity: str) -> bool:
    """Whether the parts of a folder are of a run."""
    run = folder / RUN
    return (
        record.is_ours(run)
        and json.loads(run.read_text(encoding="utf-8")).get("identity") == identity
    )


class _Parts:
    """What is done of a run: a file for each chunk, with a line of JSON for each utterance.

    Args:
        folder: where they lie; those of another run are removed.
        record: of the folder above.
        identity: of the run.
        found: the recordings.
        shard: whose chunks they are; None: all.
    """

    def __init__(
        self,
        folder: Path,
        record: Record,
        identity: str,
        found: Found,
        shard: Shard | None = None,
    ) -> None:
        self.folder, self.record, self.found = folder, record, found
        self.num_utterances = 0
        self.num_done = 0  # utterances in parts that were there before
        self._done: dict[int, bool] = {}
        if not _is_run(folder, record, identity):
            self.remove()
            with atomic_path(folder / RUN, record) as temporary:
                temporary.write_text(json.dumps({"identity": identity}) + "\n", encoding="utf-8")

        for number, chunk in enumerate(chunks(found.items())):
            if shard is None or shard.takes(number):
                done = record.is_ours(_path(folder, number))
                self._done[number] = done
                self.num_utterances += len(chunk)
                self.num_done += len(chunk) * done

    def missing(self) -> Iterator[tuple[int, list[Utterance]]]:
        """The chunks that are not done, with their numbers."""
        left = {number for number, done in self._done.items() if not done}
        return (item for item in enumerate(chunks(self.found.items())) if item[0] in left)

    def fill(self, done: Iterable[_Chunk], description: str) -> None:
        """Write parts as they are ready, and show how far it is."""
        with Progress(description, "utterance", self.num_utterances) as progress:
            progress.skip(self.num_done)
            for number, lines in done:
                self.write(number, lines)
                progress.update(len(lines))

    def write(self, number: int, lines: Sequence[dict[str, Any]]) -> None:
        """Write a part whole, or not at all."""
        with atomic_path(_path(self.folder, number), self.record) as temporary:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of all parts, in the order of the utterances."""
        for number in self._done:
            yield from _lines(_path(self.folder, number))

    def answers(self) -> Iterator[Answer]:
        """The answers of all parts, in the order of the utterances."""
        return (answer_of(deserialize_cut(line["cut"])) for line in self.lines() if "cut" in line)

    def remove(self) -> None:
        """Remove all parts."""
        for name in self.record.names():
            path = self.record.folder / name
            if path.parent.name == PARTS and path.parent.parent == self.record.folder:
                self.record.remove(path)
        with contextlib.suppress(OSError):  # it is not there, or somebody's file is in it
            self.folder.rmdir()


def _with_textgrids(done: Iterable[_Chunk], folder: Path, record: Record) -> Iterator[_Chunk]:
    """Write the TextGrids of chunks; what cannot be written gets a reason."""
    for number, lines in done:
        for line in lines:
            if "cut" in line:
                try:
                    content = json.loads(json.dumps(line["cut"]))  # a copy, as it is taken apart
                    write_answer_textgrid(answer_of(deserialize_cut(content)), folder, record)
                except ValueError as error:
                    line["reason"] = f"no TextGrid: {error}"
        yield number, lines


# ---- The work


@dataclass
class _Work:
    """Localises chunks; a copy of it goes to each process."""

    folder: Path  # of the model
    options: Options  # how
    model: Model | None  # None: it is read when it is first needed

    def __call__(self, chunk: Sequence[Utterance]) -> list[dict[str, Any]]:
        """Lines for the utterances of a chunk, in their order.

        Each has ``id`` and ``place``, and ``cut`` with what was found, or the ``reason`` why there
        is nothing.
        """
        if self.model is None:
            torch.set_num_threads(1)
            self.model = _read(self.folder, self.options)
        reasons: dict[str, str] = {}
        cuts = _readable(chunk, self.options, reasons)
        found = self.model.localize(cuts, self.options.allow_commands)
        reasons.update(found.skipped)
        answers = {answer.id: answer.cut for answer in found.answers}
        lines = []
        for utterance in chunk:
            line: dict[str, Any] = {"id": utterance.id, "place": utterance.place}
            if utterance.id in answers:
                line["cut"] = _content(answers[utterance.id], utterance)
            else:
                line["reason"] = reasons.get(utterance.id, "no answer")
            lines.append(line)
        give_back_memory()
        return lines


def _readable(
    chunk: Iterable[Utterance], options: Options, reasons: dict[str, str]
) -> Iterator[MonoCut]:
    """The cuts of utterances; the others get a reason."""
    for utterance in chunk:
        try:
            yield utterance.cut(options.channel, options.allow_commands)
        except (ValueError, OSError) as error:
            reason = one_line(error).removeprefix(f"{utterance.place}: ")
            reasons[utterance.id] = reason.removeprefix(f"{utterance.id}: ")
        except Exception as error:  # whatever is wrong with one, the others go on
            reasons[utterance.id] = with_type(error)


def _content(cut: MonoCut, utterance: Utterance) -> dict[str, Any]:
    """A cut as JSON; its audio is named as the utterance has it, and is not in the manifest."""
    recording = cut.recording
    if recording is None or all(source.type != "memory" for source in recording.sources):
        return content_of(cut)
    if utterance.line:
        content = content_of(fastcopy(cut, recording=None))
        return {**content, "recording": json.loads(utterance.line).get("recording")}
    return content_of(fastcopy(cut, recording=_named(recording, utterance)))


def _named(recording: Recording, utterance: Utterance) -> Recording:
    kind = "command" if utterance.is_command else "file"
    name = utterance.audio if utterance.is_command else str(Path(utterance.audio).absolute())
    channels = recording.sources[0].channels
    return replace(recording, sources=[AudioSource(kind, channels, name)])


def _done(folder: Path, model: Model, parts: _Parts, options: Options) -> Iterator[_Chunk]:
    """What is missing of some parts as it is ready, by a model that is read from a folder.

    Raises:
        ValueError: a process was killed.
    """
    num_jobs = options.num_jobs
    if num_jobs == 1:
        work = _Work(folder, options, model)
        for number, chunk in parts.missing():
            yield number, work(chunk)
        return
    context = multiprocessing.get_context("spawn")  # k2 and threads do not go with fork
    work = _Work(folder, options, None)
    with ProcessPoolExecutor(num_jobs, context, _begin, (work,)) as pool:
        try:
            yield from _as_ready(pool, parts.missing(), num_jobs)
        except BrokenProcessPool:
            raise ValueError(
                "a process of --num-jobs was killed, for its memory perhaps: the same command goes "
                "on from what is written; fewer jobs need less memory"
            ) from None


def _as_ready(
    pool: Executor, todo: Iterator[tuple[int, list[Utterance]]], num_jobs: int
) -> Iterator[_Chunk]:
    waiting: dict[Future, int] = {}
    while True:
        while len(waiting) < 2 * num_jobs and (task := next(todo, None)) is not None:
            waiting[pool.submit(_one, task[1])] = task[0]
        if not waiting:
            return
        ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            yield waiting.pop(future), future.result()


_work: _Work | None = None


def _begin(work: _Work) -> None:
    """In a new process, which ends when the one that began it was killed."""
    global _work
    _work = work
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _one(chunk: Sequence[Utterance]) -> list[dict[str, Any]]:
    return _work(chunk)


# ---- One recording, on the screen


def answer_one(model: Path, found: Found, options: Options) -> Answer:
    """The answer for the first of some recordings.

    Raises:
        ValueError: the model or the recording cannot be used; says why.
    """
    torch.set_num_threads(1)
    ready = _read(model, options)
    (utterance,) = found.items()
    localized = ready.localize([utterance.cut(options.channel)])
    for reason in localized.skipped.values():
        raise ValueError(f"{utterance.place}: {reason}")
    return localized.answers[0]


def describe(answer: Answer) -> str:
    """An answer as a table for a terminal: a line for each unit."""
    width = max(len(word.symbol) for word in answer.words) if answer.words else 0
    lines, last = [], None
    for unit in answer.units:
        word = "" if unit.word in (None, last) else answer.words[unit.word].symbol
        last = unit.word
        p = "    " if unit.p_mispronounced is None else f"{unit.p_mispronounced:.2f}"
        flag = f"  <- {unit.perceived}" if unit.flagged else ""
        lines.append(
            f"{unit.start:7.2f} {unit.end:7.2f}  {word:{width}}  {unit.symbol:6} {p}{flag}".rstrip()
        )
    return "\n".join(lines)
