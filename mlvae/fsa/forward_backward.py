"""Sums over all paths, frame by frame, without a lattice.

A lattice of k2 holds the arcs of all frames, and its sums are walked through state by state. What
posteriors of units need is less: how often arcs of the graph are taken, whenever that is. The
forward-backward algorithm gives it with two vectors over states, so that nothing is kept but
forward probabilities of the few states that these arcs leave, no path is left out, and a frame
costs a few operations of numpy over the arcs of a whole batch.

Probabilities are added up as such, and not as logarithms. In each utterance, forward ones are kept
near 1 by factors that go into the emissions. Backward ones are then on the scale on which the
product of both is a posterior. What is too small for double precision is lost, and how much that
can be is known: see :data:`LARGEST`. An utterance in which it may count is left to the lattice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

#: Forward probabilities below this one, where the largest is about 1, count as 0. (They would be
#: denormal soon, on which a CPU is slow.)
SMALLEST = 1e-280
#: Largest backward probability that is believed in: what a state lost is at most SMALLEST, so that
#: posteriors are off by 1e-20 at most for each state and frame.
LARGEST = 1e260
#: Least that may be left of the largest forward probability between two factors, so that nothing
#: above SMALLEST is lost in between.
LEAST_LEFT = 1e-25
#: Frames between two factors.
EVERY = 4
#: Most arcs into or out of a state that are added up row by row, over all states with as many.
MOST_ROWS = 6


class ForwardBackward:
    """The forward-backward algorithm over a batch of acceptors.

    Args:
        arcs: int32 (n, 4), arcs of the B acceptors as k2 has them, one acceptor after another:
            source and target within the acceptor, label (a column; -1 on final arcs), and the bits
            of the score.
        num_arcs: int64 (B,).
        num_states: int64 (B,).
    """

    def __init__(self, arcs: np.ndarray, num_arcs: np.ndarray, num_states: np.ndarray) -> None:
        of_arc = np.repeat(np.arange(len(num_arcs)), num_arcs)
        first = np.cumsum(num_states) - num_states
        source, target = (arcs[:, side] + first[of_arc] for side in (0, 1))
        weight = np.exp(np.ascontiguousarray(arcs[:, 3]).view(np.float32).astype(np.float64))
        emits = arcs[:, 2] >= 0
        self.emitting, self.final = np.flatnonzero(emits), np.flatnonzero(~emits)
        total = int(num_states.sum())
        counts = [np.bincount(side[emits], minlength=total) for side in (target, source)]
        # States with as many arcs lie side by side: what enters or leaves them is added up in rows.
        order = np.lexsort((counts[1], counts[0]))
        place = np.empty(total, dtype=np.int64)
        place[order] = np.arange(total)
        self.source, self.target, self.weight = place[source], place[target], weight
        self.of_arc, self.label = of_arc, arcs[:, 2]
        self.start = place[first]
        #: The acceptor of each state, and states by acceptor.
        of_state = np.repeat(np.arange(len(num_states)), num_states)
        self.of_state, self.by_acceptor, self.first = of_state[order], place, first
        some = self.emitting
        self.into = _Sums(self.target[some], counts[0][order])
        self.out = _Sums(self.source[some], counts[1][order])

    def occupancies(
        self, scores: Sequence[np.ndarray], chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How often arcs are taken.

        Args:
            scores: of each acceptor float32 (T_b, C), natural-log scores of columns by frame.
            chosen: bool (n,), which arcs are asked for.

        Returns:
            float64 (n,): the sum over frames of P(a path takes the arc), 0 for arcs that are not
            asked for; and bool (B,): which acceptors it is known of. The others have a path whose
            probability is beyond double precision, or no path at all; for them all is 0.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked at in the end
            return self._occupancies(scores, chosen)

    def _occupancies(
        self, scores: Sequence[np.ndarray], chosen: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lengths = np.array([len(one) for one in scores])
        table, column = self._table(scores)
        arcs = self.emitting[self.out.order]
        wanted = np.flatnonzero(chosen[arcs])
        kept = np.unique(self.source[np.append(arcs[wanted], self.final)])
        forward, total, known = self._forward(table, column, lengths, kept)
        found = np.zeros(len(self.weight))
        divisor = np.where(total > 0, total, 1.0)
        finals = self.final
        of_final = self.of_arc[finals]
        ends = self.weight[finals] / divisor[of_final]
        source = np.searchsorted(kept, self.source[finals])
        found[finals] = forward[lengths[of_final], source] * ends
        # By number of frames, the backward probabilities of those that end there.
        ending: dict[int, np.ndarray] = {}
        for length in np.unique(lengths).tolist():
            mine = lengths[of_final] == length
            ending[length] = np.bincount(
                self.source[finals][mine], ends[mine], minlength=len(self.of_state)
            )
        columns, weight, target = column[arcs], self.weight[arcs], self.target[arcs]
        source = np.searchsorted(kept, self.source[arcs[wanted]])
        sums, after, before = np.zeros((3, len(wanted)))
        value, emitted = np.empty((2, len(arcs)))
        backward, largest = np.zeros((2, len(self.of_state)))
        add_up = self.out.adder(value, backward)
        for time in range(int(lengths.max()), -1, -1):
            if time < len(table):
                backward.take(target, out=value, mode="wrap")
                table[time].take(columns, out=emitted, mode="wrap")
                value *= emitted
                value *= weight
                add_up()
                value.take(wanted, out=after, mode="wrap")
                forward[time].take(source, out=before, mode="wrap")
                after *= before
                sums += after
            if time in ending:
                backward += ending[time]
            np.maximum(largest, backward, out=largest)
        found[arcs[wanted]] = sums
        most = np.maximum.reduceat(largest[self.by_acceptor], self.first)
        known &= (total > 0) & (most <= LARGEST)  # not of NaN
        found[~known[self.of_arc]] = 0.0
        return found, known

    def _table(self, scores: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Emission probabilities by frame, (T, W), at most 1; and the column of each arc's.

        Each acceptor has the columns that its labels name, and 0 behind its last frame.
        """
        width = max(one.shape[1] for one in scores)
        key = self.of_arc * width + np.maximum(self.label, 0)
        used, column = np.unique(key, return_inverse=True)
        bounds = np.searchsorted(used, np.arange(len(scores) + 1) * width)
        table = np.zeros((max(map(len, scores)), len(used)))
        for index, (begin, end) in enumerate(zip(bounds[:-1], bounds[1:])):
            own = scores[index][:, used[begin:end] - index * width].astype(np.float64)
            most = own.max(axis=1, keepdims=True, initial=-np.inf)
            np.exp(own - np.where(most > -np.inf, most, 0.0), out=table[: len(own), begin:end])
        self._owner = used // width
        return table, column

    def _forward(
        self, table: np.ndarray, column: np.ndarray, lengths: np.ndarray, kept: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Forward probabilities of the states to keep, (T + 1, kept), and in the end, (B,).

        Factors that keep them near 1 are multiplied into the table. The last result says of which
        acceptors nothing is lost.
        """
        arcs = self.emitting[self.into.order]
        columns, weight, source = column[arcs], self.weight[arcs], self.source[arcs]
        value, emitted = np.empty((2, len(arcs)))
        here = np.zeros(len(self.of_state))
        add_up = self.into.adder(value, here)
        here[self.start] = 1.0
        forward = np.empty((len(table) + 1, len(kept)))
        here.take(kept, out=forward[0])
        known = np.ones(len(lengths), dtype=bool)
        for time, emissions in enumerate(table):
            here.take(source, out=value, mode="wrap")
            emissions.take(columns, out=emitted, mode="wrap")
            value *= emitted
            value *= weight
            add_up()
            if time % EVERY == EVERY - 1:
                most = np.maximum.reduceat(here[self.by_acceptor], self.first)
                known &= (most >= LEAST_LEFT) | (most == 0.0)
                factor = 1 / np.where(most > 0, most, 1.0)
                here *= factor[self.of_state]
                emissions *= factor[self._owner]
                here[here < SMALLEST] = 0.0
            here.take(kept, out=forward[time + 1])
        finals = self.final
        source = np.searchsorted(kept, self.source[finals])
        ends = forward[lengths[self.of_arc[finals]], source] * self.weight[finals]
        total = np.bincount(self.of_arc[finals], ends, minlength=len(lengths))
        return forward, total, known


class _Sums:
    """Adds up values of arcs by state.

    Args:
        state: int64 (n,), of each arc.
        count: int64 (S,), arcs of each state; states with as many lie side by side, mostly.

    Attributes:
        order: int64 (n,), which arc each of the values to add up belongs to.
    """

    def __init__(self, state: np.ndarray, count: np.ndarray) -> None:
        self._parts: list[tuple[slice, slice, int, np.ndarray | None]] = []
        by_state = np.argsort(state, kind="stable")
        begins = np.cumsum(count) - count
        order: list[np.ndarray] = []
        end = 0
        for first, last in _runs(np.minimum(count, MOST_ROWS + 1)):
            rows = int(count[first])
            if rows == 0:
                continue
            arcs = by_state[begins[first] : begins[last - 1] + count[last - 1]]
            many = None
            if rows <= MOST_ROWS:
                arcs = arcs.reshape(-1, rows).T.ravel()
            else:
                many = begins[first:last] - begins[first]
            order.append(arcs)
            self._parts.append((slice(first, last), slice(end, end + len(arcs)), rows, many))
            end += len(arcs)
        self.order = np.concatenate(order) if order else by_state
        self._without = count == 0

    def adder(self, values: np.ndarray, sums: np.ndarray) -> Callable[[], None]:
        """What puts into sums (S,) those of the values (n,), which are in ``order``, by state."""
        calls: list[Callable[[], None]] = []
        for states, arcs, rows, many in self._parts:
            mine, into = values[arcs], sums[states]
            if many is not None:
                calls.append(functools.partial(np.add.reduceat, mine, many, out=into))
                continue
            first, *others = mine.reshape(rows, -1)
            before = first if others else None
            for other in others:  # takes half as long as np.add.reduce
                calls.append(functools.partial(np.add, before, other, into))
                before = into
            if before is None:
                calls.append(functools.partial(np.copyto, into, first))
        empty = np.flatnonzero(self._without)

        def add_up() -> None:
            for call in calls:
                call()
            sums[empty] = 0.0

        return add_up


def _runs(values: np.ndarray) -> Iterator[tuple[int, int]]:
    """Where stretches of equal values begin and end."""
    edges = np.flatnonzero(np.diff(values)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), len(values)])
