"""The faster library for matrix products gives float32 results, and only where it is allowed to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from probescale.models import fast_float32 as module
from probescale.models.fast_float32 import LONG_INPUT, alike_when_repeated, fast_float32, usual_float32

WITHIN = 1e-5  # of the largest value: float32 sums in another order; bfloat16 would be off by a thousandth


@pytest.fixture(autouse=True)
def _decide_again() -> Iterator[None]:
    module._is_faster_here.cache_clear()
    yield
    module._is_faster_here.cache_clear()


def _difference(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("shape", [(384, 384, 192), (37, 130, 1536), (5, 8, 3)])
def test_products_and_their_gradients_are_as_exact_as_float32(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner, requires_grad=True), torch.randn(columns, inner, requires_grad=True)
    weights = torch.randn(rows, columns)
    with fast_float32():
        product = torch.nn.functional.linear(left, right)
        (product * weights).sum().backward()
    assert left.grad is not None
    assert right.grad is not None
    assert _difference(product.detach(), left.detach().double() @ right.detach().double().T) < WITHIN
    assert _difference(left.grad, weights.double() @ right.detach().double()) < WITHIN
    assert _difference(right.grad, weights.double().T @ left.detach().double()) < WITHIN


@pytest.mark.parametrize("tokens", [7, LONG_INPUT + 1])
def test_attention_is_the_same_for_short_and_long_inputs(tokens: int) -> None:
    query, key, value = (torch.randn(2, 4, tokens, 8, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 1, tokens) > 0.3
    mask[..., 0] = True
    usual = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    wanted = torch.autograd.grad(usual.square().sum(), query)[0]
    with fast_float32():
        found = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        gradient = torch.autograd.grad(found.square().sum(), query)[0]
    assert _difference(found.detach(), usual.detach().double()) < WITHIN
    assert _difference(gradient, wanted.double()) < 10 * WITHIN


@pytest.mark.parametrize("tokens", [7, LONG_INPUT + 1])
def test_states_that_are_computed_twice_are_computed_alike(tokens: int) -> None:
    query, key, value = (torch.randn(2, 4, tokens, 8, requires_grad=True) for _ in range(3))
    scaled_dot_product_attention(query, key, value).square().sum().backward()
    assert query.grad is not None
    usual, query.grad = query.grad.double(), None
    with fast_float32():
        found = checkpoint(
            scaled_dot_product_attention, query, key, value, use_reentrant=False, context_fn=alike_when_repeated
        )
        assert isinstance(found, torch.Tensor)
        found.square().sum().backward()
    assert query.grad is not None
    assert _difference(query.grad, usual) < 10 * WITHIN


def test_what_users_will_have_is_computed_inside_too() -> None:
    left, right = torch.randn(64, 384), torch.randn(384, 192)
    usual = left @ right
    with fast_float32(), usual_float32():
        assert torch.equal(left @ right, usual)


def test_the_setting_is_as_before_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(RuntimeError, match="stopped"), fast_float32():
        raise RuntimeError("stopped")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("maker", ["GenuineIntel", ""])
def test_other_processors_compute_as_usual(monkeypatch: pytest.MonkeyPatch, maker: str) -> None:
    monkeypatch.setattr(module, "_maker", lambda: maker)
    with fast_float32():
        assert torch.get_float32_matmul_precision() == "highest"


def test_a_library_that_would_round_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_maker", lambda: "AuthenticAMD")
    monkeypatch.setattr(torch, "equal", lambda *_: False)  # as on a processor with a matrix unit for bfloat16
    with fast_float32():
        assert torch.get_float32_matmul_precision() == "highest"
