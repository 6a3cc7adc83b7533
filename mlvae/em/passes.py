"""Passes over batches that go on where a killed run stopped, and show how far they are.

Work of hours is a sequence of passes over batches: an epoch of a module, a search over all cuts. A
checkpoint in the midst of it has modules, optimizers and random generators as they are, and of each
pass that was begun how many batches are done and what was gathered from them. A run that is started
again goes through the same sequence from its beginning. A pass that was finished has no batches
left and has gathered everything; the one that was under way goes on behind its last batch.

What is computed between passes is computed again. So that it comes out the same, it may depend on
what passes gathered, and on modules that no later pass of the sequence changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from mlvae.em import distributed
from mlvae.stage import Progress

T = TypeVar("T")

#: Seconds of work between two checkpoints. Ten minutes at most may be lost: a batch of long
#: recordings and the writing itself come on top of this.
INTERVAL = 300.0
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
