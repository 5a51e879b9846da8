"""Write a model as an ONNX graph for any batch size and length; and the same graph with 8-bit weights."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from probescale.deploy.inference import TraceableModel, input_names
from probescale.deploy.onnx.attention import choose_attention, drop_idle_reshapes
from probescale.deploy.onnx.session import INSTALL
from probescale.errors import UserError, first_line
from probescale.models.loading import LoadedModel, quiet_transformers
from probescale.tasks.kinds import Kind

TEXTS = ("A short one.", "Another text, somewhat longer than the first: how long it is must not matter.")


def write_graph(loaded: LoadedModel, kind: Kind | None, path: Path, *, fused: bool = False) -> None:
    """Write a model's graph; models that the exporter does not support are refused by name.

    `fused`: with attention as one node that only ONNX Runtime has.
    """
    try:
        import onnxscript  # noqa: F401 - the exporter needs it
    except ImportError as error:
        raise UserError("the ONNX exporter is not installed", field="--to", hint=INSTALL) from error
    fields = input_names(loaded)
    batch = loaded.tokenizer(list(TEXTS), padding=True, return_tensors="pt")
    attention = loaded.model.config._attn_implementation or "eager"
    loaded.model.set_attn_implementation(choose_attention(loaded.model, fused=fused))
    try:
        with _quietly():
            program = torch.onnx.export(
                TraceableModel(loaded, kind, fields).eval(),
                tuple(batch[name] for name in fields),
                dynamic_shapes=(tuple({0: "batch", 1: "length"} for _ in fields),),
                input_names=fields,
                output_names=[_name_output(loaded, kind)],
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            program.save(path)
    except Exception as error:  # the exporter has no common class for its errors
        raise UserError(
            f"a {loaded.family.name} model ({type(loaded.model).__name__}) cannot be written as ONNX: "
            f"{first_line(error)}",
            field="--to",
            hint="its folder loads with transformers as it is",
        ) from error
    finally:
        loaded.model.set_attn_implementation(attention)


def _name_output(loaded: LoadedModel, kind: Kind | None) -> str:
    return "sentence_embedding" if loaded.pooling else "logits" if kind else "last_hidden_state"


def refuse_generators(loaded: LoadedModel) -> None:
    """Refuse models with a decoder: other formats serve text generation."""
    family = loaded.family
    if family.pooling == "last" or family.decoder_layers(loaded.model) is not None:
        raise UserError(
            f"{type(loaded.model).__name__} has a decoder; only encoders are exported to ONNX here",
            field="--to",
            hint="for llama.cpp, use --to gguf"
            + ("; or cut the encoder alone with `probescale extract --encoder-only`" if family.decoder else ""),
        )


def write_int8(graph: Path, path: Path) -> None:
    """Write the graph with 8-bit weights of matrix products, one scale per row; activations are scaled dynamically.

    Only 7 of the 8 bits are used: processors with AVX2 alone add pairs of products in 16 bits, which would overflow.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(graph)
    drop_idle_reshapes(model.graph)
    del model.graph.value_info[:]  # shapes that the quantiser would contradict
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # of the outputs of ONNX Runtime's own nodes
    with _quietly():
        quantize_dynamic(
            model, path, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8, extra_options=options
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence the libraries' logs and warnings; the result itself is checked."""
    level = logging.root.manager.disable
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
