import torch

from mlvae import environment


def test_a_line_without_names_of_hosts_or_folders(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nprocessor\t: 1\n")
    monkeypatch.setattr(environment, "CPU_INFO", info)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {0, 3}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert environment.machine_line() == "2 cores of Some CPU: fast, no GPU"
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU")
    assert environment.machine_line() == "1 core of Some CPU: fast, Some GPU"
