"""Long work that can be killed: passes over batches, checkpoints without pickle, learning curves.

Work of hours is a sequence of passes over batches: an epoch of a module, a search over all cuts. A
checkpoint in the midst of it has modules, optimizers and random generators as they are, and of each
pass that was begun how many batches are done and what was gathered from them. A run that is started
again goes through the same sequence from its beginning. A pass that was finished has no batches
left and has gathered everything; the one that was under way goes on behind its last batch.

What is computed between passes is computed again. So that it comes out the same, it may depend on
what passes gathered, and on modules that no later pass of the sequence changes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from lhotse.cut import Cut
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import nn

from mlvae.device import give_back_memory
from mlvae.errors import one_line
from mlvae.made import remove_made, writing
from mlvae.stage import Progress, atomic_path, log
from mlvae.train import distributed

T = TypeVar("T")

#: Names of files in the folder of a training: how far it is, and the model that is kept.
CHECKPOINT, MODEL = "checkpoint.safetensors", "model.safetensors"

#: Seconds of work between two checkpoints. Ten minutes at most may be lost: a batch of long
#: recordings and the writing itself come on top of this.
INTERVAL = 300.0
#: Seconds between two times that freed memory is given back to the system. Searches of ten hours of
#: digits came to hold 900 MB more than they need without, and 100 MB more within a second.
GIVE_BACK = 3.0
#: Processes that work together ask each other every so many batches whether a checkpoint is due.
ASK_EVERY = 8


class Gathered:
    """JSON values that a pass gathers from its batches.

    Args:
        value: a list or a dictionary, to be filled by the pass.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that a checkpoint needs to :meth:`restore` it."""
        return {"json": text_tensor(self.value)}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over :meth:`tensors` of a checkpoint."""
        self.value = text_of(tensors["json"])


@dataclass
class _Pass:
    """A pass that was begun: batches done, and what was gathered from them."""

    gathered: Gathered
    done: int
    kept: dict[str, torch.Tensor] | None = None  # of a finished pass, once it was asked for

    def tensors(self, finished: bool) -> dict[str, torch.Tensor]:
        if self.kept is not None:
            return self.kept
        found = {"done": torch.tensor(self.done), **self.gathered.tensors()}
        if finished:
            self.kept = found
        return found


class Passes:
    """A sequence of passes, such as those of an iteration.

    Args:
        together: whether the processes of a run go through them together.

    Attributes:
        save: writes a checkpoint, with :meth:`tensors` in it; None: there are none.
    """

    def __init__(self, together: bool = False) -> None:
        self.together = together
        self.save: Callable[[], None] | None = None
        self._gave_back = time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Begin a new sequence, before the checkpoint that ends the one before it."""
        self._begun: list[_Pass] = []
        self._restored: dict[int, dict[str, torch.Tensor]] = {}
        self._saved = time.monotonic()

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint needs of this process."""
        last = len(self._begun) - 1
        return {
            f"{number}.{name}": value
            for number, begun in enumerate(self._begun)
            for name, value in begun.tensors(finished=number < last).items()
        }

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Go on from :meth:`tensors` of a checkpoint."""
        self.clear()
        for key, value in tensors.items():
            number, _, name = key.partition(".")
            self._restored.setdefault(int(number), {})[name] = value

    def over(
        self,
        batches: Iterable[T],
        gathered: Gathered,
        description: str,
        unit: str,
        total: int,
        size: Callable[[T], int],
        rounds: int = 0,
    ) -> Iterator[T]:
        """The batches of the next pass that are left to do.

        The loop must have put into ``gathered`` what a batch gave when it asks for the next one.

        Args:
            batches: in an order that is the same each time.
            gathered: what the loop gathers; it is restored where the pass was begun before.
            description: of the progress bar.
            unit: what the bar counts.
            total: how many there are in all batches.
            size: how many there are in a batch.
            rounds: where processes that work together have unequally many batches, the largest of
                their numbers.
        """
        number = len(self._begun)
        restored = self._restored.pop(number, None)
        this = _Pass(gathered, 0)
        if restored is not None:
            this.done = int(restored.pop("done"))
            gathered.restore(restored)
        self._begun.append(this)
        before, place = this.done, 0
        shown = not self.together or distributed.is_main()
        with Progress(description, unit, total, shown) as progress:
            for batch in batches:
                place += 1
                if place <= before:
                    progress.skip(size(batch))
                    continue
                yield batch
                progress.update(size(batch))
                self._tick(this, place)
        for empty in range(max(place, before) + 1, rounds + 1):
            self._tick(this, empty)

    def _tick(self, this: _Pass, place: int) -> None:
        """After each batch: a checkpoint, if one is due."""
        this.done = place
        if time.monotonic() - self._gave_back >= GIVE_BACK:
            give_back_memory()
            self._gave_back = time.monotonic()
        if self.save is None:
            return
        due = time.monotonic() - self._saved >= INTERVAL
        if self.together and distributed.is_distributed():
            due = place % ASK_EVERY == 0 and distributed.any_process(due)
        if due:
            self.save()
            self._saved = time.monotonic()


def text_tensor(value: Any) -> torch.Tensor:
    """JSON values as the bytes of their text, uint8; numbers keep all their digits."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def text_of(tensor: torch.Tensor) -> Any:
    """The JSON values of :func:`text_tensor`."""
    return json.loads(tensor.numpy().tobytes())


@dataclass
class TrainingState:
    """What a run needs to go on as if nothing had happened."""

    modules: dict[str, nn.Module]  # what is trained, by name
    optimizers: dict[str, torch.optim.Optimizer]  # their optimizers, by name
    progress: dict[str, Any]  # JSON values: the epoch, the best criterion, seconds spent
    #: Whatever else training goes on from.
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    passes: Passes = field(default_factory=Passes)  # what is done of the iteration under way
    #: Of losses in half precision; None where there is none.
    scaler: torch.cuda.amp.GradScaler | None = None


def save_model(path: Path, module: nn.Module, metadata: dict[str, Any]) -> None:
    """Write weights and buffers of a module, and JSON metadata, atomically.

    Raises:
        OSError: the file cannot be written; names it.
    """
    _write(path, module.state_dict(), metadata)


def load_model(path: Path, module: nn.Module) -> dict[str, Any]:
    """Read weights and buffers into a module.

    Returns:
        The metadata.

    Raises:
        ValueError: the file is absent, damaged, or of a model of other shapes; names the file.
    """
    tensors, metadata = read_tensors(path)
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = one_line(error, most=400)
        raise ValueError(f"{path} is not of this configuration: {reason}") from error
    return metadata


def adapted_count(count: int) -> int:
    """How many rounds or iterations there are where training begins from a trained model: half."""
    return -(-count // 2)


def take_weights(path: Path, module: nn.Module) -> tuple[dict[str, torch.Tensor], str]:
    """Copy those weights and buffers of a trained model that a module has in the same shape.

    Returns:
        What was copied, and what of the module was not, in words; empty where it all was.

    Raises:
        ValueError: the file is absent or damaged; names it.
    """
    tensors, own = read_tensors(path)[0], module.state_dict()
    taken = {
        name: tensors[name]
        for name in own
        if name in tensors and tensors[name].shape == own[name].shape
    }
    module.load_state_dict({**own, **taken})
    left = [f"{name} {list(own[name].shape)}" for name in own if name not in taken]
    return taken, ", ".join(left)


def read_tensors(
    path: Path, with_tensors: bool = True
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and JSON metadata of a safetensors file; ValueError names one that cannot be read."""
    if not Path(path).is_file():
        raise ValueError(f"there is no model {path}: run the stage that trains it")
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys()) if with_tensors else []
            tensors = {name: file.get_tensor(name) for name in names}
            metadata = json.loads((file.metadata() or {}).get("json", "{}"))
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file: {error}") from error
    return tensors, metadata


def read_metadata(path: Path) -> dict[str, Any]:
    """JSON metadata alone of a safetensors file; errors as in :func:`read_tensors`."""
    return read_tensors(path, with_tensors=False)[1]


def save_checkpoint(path: Path, state: TrainingState) -> None:
    """Write everything atomically: a kill leaves the previous checkpoint.

    Processes that go through the passes together call it together. The first writes; of the others,
    whose weights are the same, it has the states of their random generators and what they have
    gathered, too.

    Raises:
        OSError: the file cannot be written; names it.
    """
    own = {"rng.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        own["rng.cuda"] = torch.cuda.get_rng_state()
    everyone = [(own, state.passes.tensors())]
    if state.passes.together:
        everyone = distributed.gather(everyone[0])
        if not distributed.is_main():
            return
    tensors: dict[str, torch.Tensor] = {}
    for rank, (states, passes) in enumerate(everyone):
        tensors.update({_of_rank(key, rank): value for key, value in states.items()})
        tensors.update({f"pass.{rank}.{key}": value for key, value in passes.items()})
    for name, module in state.modules.items():
        for key, value in module.state_dict().items():
            tensors[f"module.{name}.{key}"] = value
    for name, optimizer in state.optimizers.items():
        for index, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"optimizer.{name}.{index}.{key}"] = torch.as_tensor(value)
    tensors.update({f"tensor.{name}": value for name, value in state.tensors.items()})
    _write(path, tensors, state.progress)


def _write(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, Any]) -> None:
    with atomic_path(path) as temporary:
        try:
            save_file(_contiguous(tensors), temporary, {"json": json.dumps(metadata)})
        except SafetensorError as error:  # of a full disk, too
            raise OSError(str(error)) from error


def load_checkpoint(path: Path, state: TrainingState) -> int:
    """Restore modules, optimizers, random generators, progress and passes in place.

    Each process of a run restores its own random generators and passes. One that the run did not
    have when the checkpoint was written leaves its generators as they are; and as another number of
    processes divides batches otherwise, an iteration that was under way begins anew then.

    Returns:
        How many processes the run had then.

    Raises:
        ValueError: the file is damaged, or of other modules; names the file.
    """
    tensors, progress = read_tensors(path)
    try:
        for name, module in state.modules.items():
            module.load_state_dict(_with_prefix(tensors, f"module.{name}."))
        for name, optimizer in state.optimizers.items():
            values: dict[int, dict[str, torch.Tensor]] = {}
            for key, value in _with_prefix(tensors, f"optimizer.{name}.").items():
                index, _, entry = key.partition(".")
                values.setdefault(int(index), {})[entry] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": values, "param_groups": groups})
        num_processes = 1
        while _of_rank("rng.cpu", num_processes) in tensors:
            num_processes += 1
        rank = distributed.rank() if state.passes.together else 0
        if rank < num_processes:
            torch.set_rng_state(tensors[_of_rank("rng.cpu", rank)].cpu())
    except (RuntimeError, ValueError, KeyError) as error:
        reason = one_line(error)
        raise ValueError(
            f"{path} is not of this configuration; move it away to start afresh: {reason}"
        ) from error
    cuda = tensors.get(_of_rank("rng.cuda", rank))
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda.cpu())
    state.tensors.clear()
    state.tensors.update(_with_prefix(tensors, "tensor."))
    state.progress.clear()
    state.progress.update(progress)
    same_number = num_processes == (distributed.world_size() if state.passes.together else 1)
    state.passes.restore(_with_prefix(tensors, f"pass.{rank}.") if same_number else {})
    return num_processes


class Keeper:
    """Keeps a state in a file: goes on from it, and writes it whenever a checkpoint is due.

    Processes that go through the passes together make their keepers together.

    Args:
        path: the file; one of another identity is removed. None: nothing is kept.
        state: its progress has the run's ``identity`` and the ``seconds`` of work before.

    Attributes:
        went_on: whether there was such a file.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, path: Path | None, state: TrainingState) -> None:
        self.path = None if path is None else Path(path)
        self.state = state
        self.went_on = False
        if self.path is not None:
            together = state.passes.together
            if not together or distributed.is_main():
                self._check(self.path)
            if together:
                distributed.barrier()
            if self.path.exists():
                self._go_on(self.path)
            if together:  # nobody must write before all have read
                distributed.barrier()
            state.passes.save = self.save
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of work, those before a kill included."""
        return self.state.progress["seconds"] + time.monotonic() - self._began

    def save(self) -> None:
        """Write the state as it is."""
        self.state.progress["seconds"] = self.seconds
        self._began = time.monotonic()
        if self.state.scaler is not None:
            self.state.progress["scaler"] = self.state.scaler.state_dict()
        if self.path is not None:
            save_checkpoint(self.path, self.state)

    def remove(self) -> None:
        """Remove the file, once what it stands for has been written."""
        if self.path is not None:
            remove_made(self.path)

    def _check(self, path: Path) -> None:
        """Remove what another run has left."""
        if path.exists() and read_metadata(path).get("identity") != self.state.progress["identity"]:
            log(f"{path} is of another seed, configuration or corpus: starting afresh")
            self._start_afresh()

    def _start_afresh(self) -> None:
        self.remove()

    def _go_on(self, path: Path) -> None:
        processes = load_checkpoint(path, self.state)
        self.went_on = True
        if self.state.scaler is not None:
            self.state.scaler.load_state_dict(self.state.progress.get("scaler", {}))
        log(f"going on {self._place()}")
        here = distributed.world_size()
        if self.state.passes.together and processes != here:
            log(
                f"now with {here} processes instead of {processes}: not what an undisturbed run "
                "would have given"
            )

    def _place(self) -> str:
        return f"from {self.path}"


class Loop(Keeper):
    """The iterations of a training, which goes on from its checkpoint after a kill.

    A checkpoint is written after each iteration and every few minutes within it. A checkpoint of
    another run is not gone on from but removed, with the model of that run; a run may be prolonged
    with more iterations.

    Args:
        state: what is trained; its progress is filled in. Random generators must be seeded before.
        identity: of the run, see :func:`run_identity`.
        iterations: how many there are to be.
        checkpoint: the file that is gone on from; None: there is none.
        folder: where the model of the best iteration (``model.safetensors``, the module ``model``)
            and TensorBoard scalars go; None: neither is written.
        name: what an iteration is called in the log.

    Raises:
        ValueError: the checkpoint is damaged, or its best model is gone.

    Example::

        loop = Loop(state, identity, 10, folder / CHECKPOINT, folder)
        loop.run(lambda iteration: {"loss/valid": train_and_validate(iteration)}, "loss/valid",
                 least=True)
        loop.best_iteration, loop.history
    """

    def __init__(
        self,
        state: TrainingState,
        identity: str,
        iterations: int,
        checkpoint: Path | None,
        folder: Path | None = None,
        name: str = "iteration",
    ) -> None:
        state.progress.update(iteration=0, best=None, best_iteration=0, seconds=0.0)
        state.progress.update(history=[], identity=identity)
        self.iterations = iterations
        self.folder = folder
        self.name = name
        super().__init__(checkpoint, state)

    @property
    def history(self) -> list[dict[str, float]]:
        """The scalars of each iteration up to now."""
        return self.state.progress["history"]

    @property
    def best_iteration(self) -> int:
        """The iteration whose model is kept, the first being 1; 0 before there is one."""
        return self.state.progress["best_iteration"]

    @property
    def before(self) -> dict[str, float] | None:
        """What :meth:`keep` was told; None where it was not."""
        return self.state.progress.get("before")

    def keep(self, scalars: dict[str, float], criterion: str, metadata: dict[str, Any]) -> None:
        """Keep the model as it is before the first iteration, until one is better.

        Args:
            scalars: as an iteration has them.
            criterion: see :meth:`run`.
            metadata: the same.
        """
        self.state.progress.update(best=scalars[criterion], before=scalars)
        if distributed.is_main():
            own = {"iteration": 0, **metadata}
            save_model(self.folder / MODEL, self.state.modules["model"], own)

    def run(
        self,
        step: Callable[[int], dict[str, float]],
        criterion: str | Callable[[], str] = "",
        least: bool = False,
        metadata: dict[str, Any] | None = None,
        tensors: Callable[[], dict[str, torch.Tensor]] = dict,
    ) -> None:
        """Train to the end.

        Args:
            step: does an iteration, the first being 0, and returns its scalars.
            criterion: the scalar by which the best iteration is chosen, the higher the better, or
                what names it once an iteration is in the history.
            least: the lower the better.
            metadata: JSON values that the best model's file gets.
            tensors: what else the checkpoint after an iteration needs, see :class:`TrainingState`.
        """
        progress, main = self.state.progress, distributed.is_main()
        with contextlib.ExitStack() as stack:
            writer = None
            if main and self.folder is not None:
                # What a killed run wrote beyond its checkpoint is hidden.
                writer = ScalarWriter(self.folder / "tensorboard", progress["iteration"] + 1)
                stack.enter_context(writer)
            self._began = time.monotonic()
            while progress["iteration"] < self.iterations:
                scalars = step(progress["iteration"])
                progress["iteration"] += 1
                progress["history"].append(scalars)
                if self.folder is not None:
                    name = criterion if isinstance(criterion, str) else criterion()
                    value, best = scalars[name], progress["best"]
                    if best is None or (value < best if least else value > best):
                        progress.update(best=value, best_iteration=progress["iteration"])
                        if main:
                            own = {"iteration": progress["iteration"], **(metadata or {})}
                            save_model(self.folder / MODEL, self.state.modules["model"], own)
                self.state.tensors = tensors()
                self.state.passes.clear()
                self.save()
                for name, value in scalars.items():
                    if writer is not None:
                        writer.add_scalar(name, value, progress["iteration"])
                log(
                    f"{self.name} {progress['iteration']}: "
                    + ", ".join(f"{name} {value:.4g}" for name, value in scalars.items())
                )

    def _check(self, path: Path) -> None:
        super()._check(path)
        if self.folder is None or not path.exists() or (self.folder / MODEL).exists():
            return
        if read_metadata(path)["best_iteration"]:  # within the first one there is no model yet
            raise ValueError(
                f"{path} is there without {MODEL}, its best iteration: move it away to start afresh"
            )

    def _start_afresh(self) -> None:
        if self.folder is not None:
            remove_made(self.folder / MODEL)
        super()._start_afresh()

    def _go_on(self, path: Path) -> None:
        super()._go_on(path)
        model = None if self.folder is None else self.folder / MODEL
        kept = read_metadata(model).get("iteration", 0) if model and model.exists() else 0
        if kept > self.state.progress["iteration"]:
            # A kill came between model and checkpoint, and the best model from before is gone.
            # Done again on other hardware, that iteration need not be the best once more.
            self.state.progress["best"] = None

    def _place(self) -> str:
        return f"after {self.name} {self.state.progress['iteration']} of {self.iterations}"


def keep_passes(path: Path, settings: dict, seed: int, cut_sets: Sequence[Iterable[Cut]]) -> Keeper:
    """Keep passes over cuts in a file; arguments as of :class:`Keeper` and :func:`run_identity`."""
    identity = run_identity(settings, seed, None, cut_sets)
    return Keeper(path, TrainingState({}, {}, {"identity": identity, "seconds": 0.0}))


def weights_digest(module: nn.Module) -> str:
    """64 hexadecimal digits that are equal for equal weights and buffers."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def run_identity(
    settings: dict, seed: int, setup: dict | None, cut_sets: Sequence[Iterable[Cut]]
) -> str:
    """Equal for runs that may go on from each other's checkpoint.

    Features and alignment are not in it: made anew by the same command, they may differ in the last
    digits on another number of threads or on a GPU. The audio that they were made of is, by the
    digest that stage 1 leaves in ``custom["audio_digest"]`` of a cut.

    Args:
        settings: JSON values of the training settings that count.
        seed: of the run.
        setup: JSON values of what else counts.
        cut_sets: cuts with features and canonical units; ids, lengths, audio, units and the words'
            limits and pronunciations count.

    Returns:
        64 hexadecimal digits.
    """
    fields = ("units", "word_of_unit", "pronunciations")
    digest = hashlib.sha256(json.dumps([settings, seed, setup], sort_keys=True).encode("utf-8"))
    for cut_set in cut_sets:
        digest.update(b"\n")
        for cut in cut_set:
            counts = (
                cut.id,
                cut.num_frames,
                (cut.custom or {}).get("audio_digest"),
                *(cut.supervisions[0].custom.get(name) for name in fields),
            )
            digest.update(json.dumps(counts, sort_keys=True).encode("utf-8"))
    return digest.hexdigest()


def _of_rank(key: str, rank: int) -> str:
    """The key of a process; the first one's has no number, as that of one process alone."""
    return f"{key}.{rank}" if rank else key


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    # safetensors refuses views and shared memory.
    return {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}


class ScalarWriter:
    """Adds a file of events to a folder; those of earlier runs stay.

    Args:
        folder: it is made where it is not there.
        purge_step: what earlier files hold of this step and later ones is not shown.

    Raises:
        WriteError: the file cannot be written.

    Example::

        with ScalarWriter(Path("exp/tensorboard"), purge_step=1) as scalars:
            scalars.add_scalar("loss/train", 0.5, step=1)
    """

    def __init__(self, folder: Path, purge_step: int) -> None:
        name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
        self.path = Path(folder) / name
        with writing(self.path):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
        try:
            self._write(Event(file_version="brain.Event:2", step=purge_step))
            self._write(Event(session_log=SessionLog(status=SessionLog.START), step=purge_step))
        except OSError:
            self._file.close()
            raise

    def __enter__(self) -> ScalarWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write a scalar, whole or not at all.

        Raises:
            WriteError: it cannot be written.
        """
        scalar = Summary.Value(tag=name, simple_value=value)
        self._write(Event(summary=Summary(value=[scalar]), step=step))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        size = self._file.tell()
        with writing(self.path):
            try:
                if self._file.write(record.getvalue()) < len(record.getvalue()):
                    raise OSError(os.strerror(errno.ENOSPC))
            except OSError:
                self._file.truncate(size)
                self._file.seek(size)
                raise
