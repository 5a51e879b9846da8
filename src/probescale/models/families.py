"""One short description per model family. To add a family, add an entry here; nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from probescale.errors import UserError
from probescale.models.family import Family, Stack
from probescale.models.subsets import MAX_LAYERS

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

BERT = Stack("encoder.layer", "attention.output.dense", "output.dense", unit_projections=("intermediate.dense",))
PHI3 = Stack("layers", "self_attn.o_proj", "mlp.down_proj")
LLAMA = replace(
    PHI3,
    head_projections=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    unit_projections=("mlp.gate_proj", "mlp.up_proj"),
)
T5_BIAS = ("layer.0.SelfAttention.relative_attention_bias.weight",)
T5_ENCODER = Stack(
    "encoder.block", "layer.0.SelfAttention.o", "layer.1.DenseReluDense.wo", first_block_only=T5_BIAS,
    head_projections=tuple(f"layer.0.SelfAttention.{part}" for part in "qkv"),
    unit_projections=tuple(f"layer.1.DenseReluDense.{part}" for part in ("wi", "wi_0", "wi_1")), width_setting="d_ff",
)  # fmt: skip
T5_DECODER = Stack("decoder.block", layer_count_setting="num_decoder_layers", first_block_only=T5_BIAS)


def _bert(name: str, model_type: str = "", **rest: object) -> Family:
    return replace(Family(name, (model_type or name,), BERT), **rest)  # type: ignore[arg-type]


def _llama(name: str, model_type: str = "") -> Family:
    return Family(name, (model_type or name,), LLAMA, embeddings=("embed_tokens",), pooling="last")


def _t5(name: str, backbone: str) -> Family:
    # transformers has no encoder-only T5 sentence classifier. The token classifier is encoder-only, and the masked mean
    # of its token logits is exactly a linear head on the mean-pooled states.
    return Family(
        name, (name,), T5_ENCODER, decoder=T5_DECODER, embeddings=("shared",), pooling="mean",
        backbone_class=backbone, classifier_class="AutoModelForTokenClassification", mean_of_token_logits=True,
        learning_rate_factor=5.0,  # its weights are larger, and its layers have no norm after them
    )  # fmt: skip


def _convolution(config: PreTrainedConfig) -> str:
    convolves = getattr(config, "conv_kernel_size", 0)
    return "a convolution follows the first layer and was trained with it" if convolves else ""


def _no_first_norm(_config: object) -> str:
    return "the stock class has no attention norm in its first layer, so another layer's norm would be lost there"


def _scaled_by_depth(config: PreTrainedConfig) -> str:
    scaled = getattr(config, "scale_attn_by_inverse_layer_idx", False)
    return "scale_attn_by_inverse_layer_idx scales attention by the layer number, which a cut changes" if scaled else ""


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _bert("bert"),
        _bert("roberta", positions_after_padding=True),
        _bert("xlm-roberta", positions_after_padding=True),
        _bert("camembert", positions_after_padding=True),
        Family("distilbert", ("distilbert",),
               Stack("transformer.layer", "attention.out_lin", "ffn.lin2",
                     unit_projections=("ffn.lin1",), width_setting="hidden_dim")),
        _bert("electra", embeddings=("embeddings", "embeddings_project")),
        _bert("mpnet", stack=replace(BERT, attention_output="attention.attn.o"), positions_after_padding=True),
        _bert("deberta-v2", layer_1_stays=_convolution),
        Family("modernbert", ("modernbert",), Stack("layers", "attn.Wo", "mlp.Wo"), layer_1_stays=_no_first_norm),
        _t5("t5", "T5EncoderModel"),
        _t5("mt5", "MT5EncoderModel"),
        Family(
            "bart", ("bart",), pooling="mean",
            stack=Stack("encoder.layers", "self_attn.out_proj", "fc2",
                        unit_projections=("fc1",), width_setting="encoder_ffn_dim"),
            decoder=Stack("decoder.layers", layer_count_setting="decoder_layers"),
            embeddings=("shared", "encoder.embed_positions", "encoder.layernorm_embedding",
                        "decoder.embed_positions", "decoder.layernorm_embedding"),
        ),
        Family("gpt2", ("gpt2",),
               Stack("h", "attn.c_proj", "mlp.c_proj", unit_projections=("mlp.c_fc",), width_setting="n_inner"),
               embeddings=("wte", "wpe"), pooling="last", why_refused=_scaled_by_depth),
        Family("gpt-neox", ("gpt_neox",),
               Stack("layers", "attention.dense", "mlp.dense_4h_to_h", unit_projections=("mlp.dense_h_to_4h",)),
               embeddings=("embed_in",), pooling="last"),
        Family("opt", ("opt",), pooling="last",
               stack=Stack("decoder.layers", "self_attn.out_proj", "fc2",
                           unit_projections=("fc1",), width_setting="ffn_dim"),
               embeddings=("decoder.embed_tokens", "decoder.embed_positions", "decoder.project_in")),
        _llama("llama"),
        _llama("mistral"),
        _llama("qwen2"),
        _llama("qwen3"),
        _llama("gemma2"),
        _llama("gemma3", "gemma3_text"),
        replace(_llama("phi3"), stack=PHI3, why_heads_are_fixed="it stores queries, keys and values as one matrix"),
    )
}  # fmt: skip

# All layers share one block of weights: there is nothing to drop.
SHARED_BLOCKS = ("albert",)


def find_family(config: PreTrainedConfig, *, field: str = "model.source") -> Family:
    """The family of a model: described above, or detected from the model's structure."""
    known = (family for family in FAMILIES.values() if config.model_type in family.model_types)
    if config.model_type in SHARED_BLOCKS:
        raise UserError(
            f'all layers of "{config.model_type}" models share one block of weights: dropping layers would save time, '
            "but no parameters",
            field=field,
            hint="use a model whose layers have their own weights; see `probescale list families`",
        )
    counts = {name: value for name, value in vars(config).items() if "layer" in name and type(value) is int}
    if counts and max(counts.values()) > MAX_LAYERS:  # even without weights, so many modules would fill the memory
        name = max(counts, key=counts.__getitem__)
        raise UserError(
            f"{name} of the model's config is {counts[name]:,}", field=field, hint=f"at most {MAX_LAYERS:,}"
        )
    family = next(known, None)
    if family is None:
        from probescale.models.detection import detect_family

        described = [model_type for family in FAMILIES.values() for model_type in family.model_types]
        family = detect_family(config, known=described, field=field)
    if family.count_layers(config) < 1:
        raise UserError("the model's config says that it has no layers", field=field)
    if reason := family.why_refused(config):
        raise UserError(f"this model cannot be cut: {reason}", field=field)
    return family
