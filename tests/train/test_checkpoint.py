from __future__ import annotations

import json
import pickle
import random

import pytest
import torch
from lhotse import CutSet
from safetensors.torch import load_file, save_file
from torch import nn

from mlvae.train.loop import (
    TrainingState,
    load_checkpoint,
    load_model,
    read_metadata,
    read_tensors,
    run_identity,
    save_checkpoint,
    save_model,
)
from tests.train.tiny import spoken_cuts


class Net(nn.Module):
    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, 4), nn.Linear(4, 2)
        self.register_buffer("scale", torch.rand(size))

    def forward(self, inputs):
        return self.second(torch.dropout(self.first(inputs * self.scale), 0.5, True))


def make_state(size: int = 3) -> TrainingState:
    net = Net(size)
    optimizers = {
        name: torch.optim.Adam(getattr(net, name).parameters(), lr=0.01)
        for name in ("first", "second")
    }
    progress = {"iteration": 2, "best": 1 / 3, "history": [{"loss": 0.1}]}
    return TrainingState({"net": net}, optimizers, progress)


def train(state: TrainingState, steps: int) -> None:
    net = state.modules["net"]
    for _ in range(steps):
        for optimizer in state.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
            net(torch.randn(5, 3)).pow(2).sum().backward()
            optimizer.step()
        state.progress["iteration"] += 1


def weights(state: TrainingState) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in state.modules["net"].state_dict().items()}


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_training_goes_on_bit_for_bit(tmp_path):
    torch.manual_seed(0)
    state = make_state()
    train(state, 3)
    save_checkpoint(tmp_path / "c.safetensors", state)
    saved = weights(state)
    train(state, 3)

    torch.manual_seed(123)  # a new process
    other = make_state()
    other.progress.update(iteration=0, stale=True)
    load_checkpoint(tmp_path / "c.safetensors", other)
    assert_equal(weights(other), saved)
    assert other.progress == {"iteration": 5, "best": 1 / 3, "history": [{"loss": 0.1}]}
    train(other, 3)
    assert_equal(weights(other), weights(state))
    for name, optimizer in state.optimizers.items():
        mine, theirs = optimizer.state_dict(), other.optimizers[name].state_dict()
        assert mine["param_groups"] == theirs["param_groups"]
        for index, values in mine["state"].items():
            for key, value in values.items():
                assert torch.equal(torch.as_tensor(value), theirs["state"][index][key])


def test_a_checkpoint_before_the_first_step(tmp_path):
    state = make_state()
    save_checkpoint(tmp_path / "c.safetensors", state)
    other = make_state()
    load_checkpoint(tmp_path / "c.safetensors", other)
    assert_equal(weights(other), weights(state))
    train(other, 1)


def test_model_and_metadata(tmp_path):
    net, other = Net(), Net()
    save_model(tmp_path / "sub" / "m.safetensors", net, {"iteration": 7, "name": "café"})
    assert load_model(tmp_path / "sub" / "m.safetensors", other) == {
        "iteration": 7,
        "name": "café",
    }
    assert_equal(net.state_dict(), other.state_dict())
    assert read_metadata(tmp_path / "sub" / "m.safetensors")["iteration"] == 7
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["m.safetensors"]


def test_other_people_can_read_the_files(tmp_path):
    """safetensors reads them without this package; nothing in them is pickled."""
    state = make_state()
    train(state, 1)
    save_checkpoint(tmp_path / "c.safetensors", state)
    tensors = load_file(tmp_path / "c.safetensors")
    assert torch.equal(tensors["module.net.scale"], state.modules["net"].scale)
    content = (tmp_path / "c.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["json"]) == state.progress


class Trap:
    """Pickled, it would act when it is loaded."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def half(path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


DAMAGE = {
    "cut": half,
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(random.Random(0).randbytes(1000)),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "torch": lambda path: torch.save({"weight": Trap()}, path),
    "text": lambda path: path.write_text("model: none\n"),
    "bad json": lambda path: save_file({"a": torch.zeros(1)}, path, {"json": "{"}),
    "absent": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize(
    "read", [load_checkpoint, lambda path, state: load_model(path, state.modules["net"])]
)
def test_a_damaged_file_is_a_value_error_that_names_it(tmp_path, kind, read):
    state = make_state()
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, state)
    DAMAGE[kind](path)
    for read_it in (read, lambda path, _: read_metadata(path)):
        with pytest.raises(ValueError, match="c.safetensors"):
            read_it(path, state)


def test_files_of_other_shapes_and_other_things_are_refused(tmp_path):
    save_checkpoint(tmp_path / "c.safetensors", make_state(size=5))
    save_model(tmp_path / "m.safetensors", Net(5), {})
    foreign = {"a": torch.zeros(2)}
    save_file(foreign, tmp_path / "foreign.safetensors")
    for name in ("c", "m", "foreign"):
        path = tmp_path / f"{name}.safetensors"
        with pytest.raises(ValueError, match=f"{name}.safetensors is not of this configuration"):
            load_checkpoint(path, make_state())
        with pytest.raises(ValueError, match=f"{name}.safetensors is not of this configuration"):
            load_model(path, Net())
    # The weights of a model alone are no checkpoint either.
    save_file(
        {f"module.net.{name}": value for name, value in Net().state_dict().items()},
        tmp_path / "weights.safetensors",
    )
    with pytest.raises(ValueError, match=r"weights.safetensors is not of this configuration"):
        load_checkpoint(tmp_path / "weights.safetensors", make_state())


@pytest.mark.parametrize("save", ["checkpoint", "model"])
def test_a_write_that_fails_leaves_the_earlier_file(tmp_path, monkeypatch, save):
    path = tmp_path / "c.safetensors"
    state = make_state()

    def write() -> None:
        if save == "checkpoint":
            save_checkpoint(path, state)
        else:
            save_model(path, state.modules["net"], {})

    write()
    before = path.read_bytes()

    def dies(tensors, file, metadata):
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("mlvae.train.loop.save_file", dies)
    train(state, 1)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["c.safetensors"]


def test_tensors_that_share_memory_are_written(tmp_path):
    net = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    net[1].weight = net[0].weight
    save_model(tmp_path / "m.safetensors", net, {})
    tensors, _ = read_tensors(tmp_path / "m.safetensors")
    assert torch.equal(tensors["0.weight"], tensors["1.weight"])


def test_runs_of_other_seeds_settings_or_cuts_are_other_runs():
    cuts, _ = spoken_cuts(3)
    fewer = CutSet.from_cuts(list(cuts)[:2])
    first = run_identity({"rate": 0.1}, 0, None, [cuts])
    assert first == run_identity({"rate": 0.1}, 0, None, [spoken_cuts(3)[0]])
    others = [
        run_identity({"rate": 0.2}, 0, None, [cuts]),
        run_identity({"rate": 0.1}, 1, None, [cuts]),
        run_identity({"rate": 0.1}, 0, {"deltas": True}, [cuts]),
        run_identity({"rate": 0.1}, 0, None, [fewer]),
        run_identity({"rate": 0.1}, 0, None, [cuts, fewer]),
    ]
    assert len({first, *others}) == 6
