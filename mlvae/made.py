"""What the project has written, so that only that is ever replaced or deleted.

A folder that stages write to holds `RECORD`, a line of JSON for each file that was put there: its
name relative to the folder, its size and its SHA-256. A file of another content, or one that no
line names, is somebody's own: it is left untouched, and whoever would have replaced it says so. A
line is written before its file is put in place, so that a kill in between loses nothing.

Files are written in a scratch folder of a random name, which has a line before it is made, too: by
that the left-overs of a killed run are known.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from mlvae.errors import system_reason

RECORD = ".mlvae-made.jsonl"
LOCK = ".mlvae-lock"
"""Held by whoever writes to the folder, see `mlvae.lock`."""

MAX_NAME = 255  # bytes of a file's name, on the file systems in use


class InTheWayError(ValueError):
    """Where something is to be written lies what was not made here, or was changed since."""


class WriteError(OSError):
    """A file cannot be written: names it, and says why."""

    def __init__(self, path: Path, error: BaseException) -> None:
        super().__init__(f"{path} cannot be written: {system_reason(error)}")


class Record:
    """The record of a folder, which need not be there yet."""

    def __init__(self, folder: Path) -> None:
        # Names are as they are written: a folder within may be a link to another disk.
        self.folder = Path(os.path.abspath(folder))
        self.path = self.folder / RECORD
        self._sums: dict[str, set[tuple[int, str]]] = {}
        self._scratch: set[str] = set()
        self._read()

    @classmethod
    def above(cls, path: Path) -> Record | None:
        """The record of the nearest folder above a path that has one."""
        for folder in Path(os.path.abspath(path)).parents:
            if (folder / RECORD).is_file():
                return cls(folder)
        return None

    @classmethod
    def begin(cls, folder: Path) -> Record:
        """The record of a folder; both are made where they are not there yet."""
        record = cls(folder)
        with writing(record.path):
            record.folder.mkdir(parents=True, exist_ok=True)
            record.path.touch()
        return record

    def tidy(self) -> None:
        """Forget scratch folders that are gone, and remove a record that says nothing.

        Nobody else must be writing to the folder.
        """
        self._read()
        gone = {name for name in self._scratch if not os.path.lexists(self.folder / name)}
        self._scratch -= gone
        with contextlib.suppress(OSError):  # it is as good as it was, and longer
            if not self._scratch and not self._sums:
                self.path.unlink(missing_ok=True)
            elif gone:
                self._write_anew()

    def names(self) -> list[str]:
        """Files that were put into the folder; they need not be there any more."""
        return sorted(self._sums)

    def is_ours(self, path: Path) -> bool:
        """Whether a path holds a file that was made here and has not been changed since."""
        sums = self._sums.get(self._name(path))
        if not sums or path.is_symlink() or not path.is_file():
            return False
        size = path.stat().st_size
        return any(size == known for known, _ in sums) and (size, file_digest(path)) in sums

    def check(self, paths: Iterable[Path]) -> None:
        """Check that paths are free, or hold what was made here.

        Raises:
            InTheWayError: names the first that do not, and how many more there are.
        """
        wrong = [path for path in paths if os.path.lexists(path) and not self.is_ours(path)]
        if wrong:
            names = ", ".join(map(str, wrong[:3]))
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise InTheWayError(
                f"{names}{more}: in the way, not made here or changed since, and left untouched; "
                f"move {'it' if len(wrong) == 1 else 'them'} elsewhere and run this again"
            )

    def check_tree(self, folder: Path) -> None:
        """Check that all files of a folder, and of those in it, were made here.

        Links within are followed nowhere, and are not made here.

        Raises:
            InTheWayError: as `check`, or the folder is something else.
        """
        folder = Path(folder)
        if not folder.is_dir():
            self.check([folder] if folder.exists() else [])
            return
        files = []
        for root, folders, names in os.walk(folder):
            place = Path(root)
            folders[:] = sorted(name for name in folders if not self._is_scratch(place / name))
            files += [place / name for name in folders if (place / name).is_symlink()]
            files += [place / name for name in sorted(names) if name not in (RECORD, LOCK)]
        self.check(files)

    def add(self, path: Path, content: Path) -> None:
        """Note that ``path`` is about to hold what ``content`` holds now."""
        line = {"path": self._name(path), "size": content.stat().st_size}
        self._note({**line, "sha256": file_digest(content)})

    def remove(self, path: Path) -> None:
        """Delete a file that was made here; one that is not there is no error.

        Raises:
            InTheWayError: as `check`.
        """
        self.check([path])
        with writing(path):
            path.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Delete all that was made here, the record and the folder; what was changed since stays.

        Nobody else must be writing to the folder.
        """
        self.remove_left_overs()
        (self.folder / LOCK).unlink(missing_ok=True)  # of a killed run
        for name in self.names():
            with contextlib.suppress(InTheWayError):
                self.remove(self.folder / name)
        above = {path for name in self.names() for path in (self.folder / name).parents}
        if not any(os.path.lexists(self.folder / name) for name in self.names()):
            self.path.unlink(missing_ok=True)
        inner = {path for path in above if self.folder in path.parents}
        for path in (*sorted(inner, reverse=True), self.folder):
            with contextlib.suppress(OSError):  # it holds something still
                path.rmdir()

    @contextlib.contextmanager
    def scratch(self, parent: Path) -> Iterator[Path]:
        """An empty folder in ``parent`` that is gone after the block."""
        path = Path(parent) / f".mlvae-tmp-{secrets.token_hex(8)}"
        self._note({"scratch": self._name(path)})
        with _folder_for_a_while(path):
            yield path

    def remove_left_overs(self) -> None:
        """Remove what killed runs have left; nobody else must be writing to the folder."""
        for name in sorted(self._scratch):
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)

    def _name(self, path: Path) -> str:
        return Path(os.path.relpath(os.path.abspath(path), self.folder)).as_posix()

    def _is_scratch(self, path: Path) -> bool:
        return self._name(path) in self._scratch

    def _read(self) -> None:
        if self.path.is_file():
            for line in self.path.read_bytes().split(b"\n"):
                # A line that a kill or a full disk has cut is no line.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._take(json.loads(line))

    def _take(self, line: dict) -> bool:
        """Remember a line; False where it says nothing new, or is of something outside."""
        name = line.get("scratch") or line["path"]
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return False
        if "scratch" in line:
            self._scratch.add(name)
            return True
        known, sums = self._sums.setdefault(name, set()), (int(line["size"]), line["sha256"])
        is_new = sums not in known
        known.add(sums)
        return is_new

    def _note(self, line: dict) -> None:
        if self._take(line):
            with writing(self.path), open(self.path, "a+b") as file:
                cut = file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
                file.write((b"\n" if cut else b"") + _line(line))

    def _write_anew(self) -> None:
        lines = [_line({"scratch": name}) for name in sorted(self._scratch)]
        for name, sums in sorted(self._sums.items()):
            lines += [_line({"path": name, "size": n, "sha256": s}) for n, s in sorted(sums)]
        new = self.path.with_name(f".mlvae-tmp-{secrets.token_hex(8)}")
        try:
            new.write_bytes(b"".join(lines))
            os.replace(new, self.path)
        finally:
            new.unlink(missing_ok=True)


def _line(content: dict) -> bytes:
    # Names that are no UTF-8 are escaped, as JSON has it.
    return json.dumps(content).encode("ascii") + b"\n"


def file_digest(path: Path) -> str:
    """64 hexadecimal digits of a file's content, SHA-256."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def _folder_for_a_while(path: Path) -> Iterator[None]:
    try:
        path.mkdir()
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def writing(path: Path, scratch: Path | None = None) -> Iterator[None]:
    """Turn an OSError of the block into one that names ``path``.

    An error that names another file, outside ``scratch``, passes as it is.

    Raises:
        WriteError: where the block cannot write.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        named = error.filename
        inside = scratch is not None and str(scratch) in str(named)
        if named is None or inside or str(named) == str(path):
            raise WriteError(path, error) from error
        raise


@contextlib.contextmanager
def atomic_path(path: Path, record: Record | None = None) -> Iterator[Path]:
    """Give a path beside ``path`` to write to; what is written replaces it when the block succeeds.

    The name of that path is short whatever the other's, and ends in the same suffix, because
    writers choose their format (``.jsonl.gz``) by it. Folders above are made. After an error
    nothing is left of it, and ``path`` is what it was before.

    In a folder with a record (`Record.above`, or the one given) a file that was not made here is
    not replaced. Where there is no record the caller knows what may be replaced.

    Raises:
        InTheWayError: ``path`` holds something else.
        WriteError: it cannot be written.
    """
    path = Path(path)
    record = record or Record.above(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if record is None:
            scratch = path.parent / f".mlvae-tmp-{secrets.token_hex(8)}"
            stack.enter_context(writing(path, scratch))
            stack.enter_context(_folder_for_a_while(scratch))
        else:
            scratch = stack.enter_context(record.scratch(path.parent))
            stack.enter_context(writing(path, scratch))
        temporary = scratch / f"new{_suffix(path)}"
        yield temporary
        if record is not None:
            record.check([path])
            record.add(path, temporary)
        os.replace(temporary, path)


def _suffix(path: Path) -> str:
    """The last two suffixes of a name, or the last one, or none, whichever is short."""
    for suffix in ("".join(path.suffixes[-2:]), path.suffix):
        if len(suffix) <= 16 and suffix.isascii():
            return suffix
    return ""


def remove_made(path: Path) -> None:
    """Delete a file, in a folder with a record only if it was made here.

    Raises:
        InTheWayError: it was not.
        WriteError: it cannot be deleted.
    """
    record = Record.above(path)
    if record is not None:
        record.remove(path)
        return
    with writing(path):
        Path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def replaced_folder(folder: Path, record: Record, marker: str = "") -> Iterator[Path]:
    """Give an empty folder; its files take the place of all that was made in ``folder``.

    A link in the place of ``folder`` is followed, one within it is not. After an error the folder
    is what it was before. The record is its own, or that of a folder above; a marker, the file
    that says that the folder is whole, goes first and comes last.

    Raises:
        InTheWayError: the folder holds what was not made here.
        WriteError: it cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    record.check_tree(folder)
    with writing(folder):
        # Of a link to a folder that is not there yet, that folder.
        Path(os.path.realpath(folder)).mkdir(parents=True, exist_ok=True)
    with record.scratch(folder) as scratch, writing(folder, scratch):
        yield scratch
        _put_in_place(scratch, folder, record, marker)


def _put_in_place(scratch: Path, folder: Path, record: Record, marker: str) -> None:
    folders, names = [], []
    for root, inner, files in os.walk(scratch):
        place = Path(root).relative_to(scratch)
        folders += [place / name for name in inner]
        names += [place / name for name in files]
    names.sort(key=lambda name: (str(name) == marker, name))
    for name in names:
        record.add(folder / name, scratch / name)
    record.check_tree(folder)
    if marker:
        record.remove(folder / marker)
    wanted = {folder / name for name in names}
    for path in (record.folder / name for name in record.names()):
        if folder in path.parents and path not in wanted:
            record.remove(path)
            with contextlib.suppress(OSError):  # of a folder that holds something still
                for above in path.parents:
                    if above == folder:
                        break
                    above.rmdir()
    for name in folders:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in names:
        os.replace(scratch / name, folder / name)


def check_apart(source: Path, *written: Path) -> None:
    """Check that recordings do not lie where something is written, through links either.

    Raises:
        InTheWayError: what is written is the source, lies in it, or the source lies in it.
    """
    inside = Path(os.path.realpath(source))
    for path in written:
        place = Path(os.path.realpath(path))
        if inside == place or inside in place.parents or place in inside.parents:
            raise InTheWayError(
                f"the recordings in {source} and what is to be written to {path} lie within each "
                "other: write to another folder (--data-dir), or move the recordings"
            )


def path_of_id(folder: Path, item_id: str, suffix: str) -> Path:
    """The file of an item (a cut, a recording) in a folder, never outside of it.

    An id with a ``/`` gives a file in a folder within. A name that would be too long is cut, and
    ends in a digest of the whole.

    Raises:
        ValueError: the id leads out of the folder, or is no name of a file.
    """
    parts = item_id.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"the id {item_id!r} cannot be the name of a file")
    *above, name = parts
    return Path(folder).joinpath(*(_short(part) for part in above), _short(name, suffix))


def _short(name: str, suffix: str = "") -> str:
    encoded = os.fsencode(name)
    room = MAX_NAME - len(os.fsencode(suffix))
    if len(encoded) > room:
        digest = hashlib.sha256(encoded).hexdigest()[:16]
        # Bytes of half a letter at the end are left out.
        name = f"{encoded[: room - len(digest) - 1].decode('utf-8', 'ignore')}-{digest}"
    return name + suffix
