"""Exports models to ONNX as one file, with any version of torch."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import torch


def export_onnx(path: Path, network: torch.nn.Module, *inputs: torch.Tensor) -> Path:
    """Inputs ``x`` and, where there are two, ``x_lens``; outputs ``log_probs`` and theirs."""
    options = {"opset_version": 14}
    if "external_data" in inspect.signature(torch.onnx.export).parameters:
        # torch 2 writes the weights beside it otherwise, and knows no older operators.
        options = {"opset_version": 18, "external_data": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how to name axes differs by version
        torch.onnx.export(
            network.eval(),
            inputs,
            str(path),
            input_names=["x", "x_lens"][: len(inputs)],
            output_names=["log_probs", "log_probs_len"][: len(inputs)],
            dynamic_axes={"x": {0: "N", 1: "T"}, "log_probs": {0: "N", 1: "T2"}},
            **options,
        )
    return path
