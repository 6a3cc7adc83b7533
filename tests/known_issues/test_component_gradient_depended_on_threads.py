"""The gradient of indexing a table is added up by whichever thread comes first.

So two runs of one command differed in the last bits of the speech generator, and later in more.
"""

from __future__ import annotations

import torch

from mlvae.nn.generator import _rows


def test_gradient_is_the_same_every_time():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        generator = torch.Generator().manual_seed(0)
        unit = torch.randint(10, (32, 300), generator=generator)
        weight = torch.randn(32, 300, 4, 16, generator=generator)
        gradients = []
        for _ in range(20):
            table = torch.zeros(10, 4, 16, requires_grad=True)
            (_rows(table, unit) * weight).sum().backward()
            gradients.append(table.grad)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)
    expected = torch.zeros(10, 4, 16).index_add(0, unit.flatten(), weight.flatten(0, 1))
    torch.testing.assert_close(gradients[0], expected, rtol=1e-4, atol=1e-3)
