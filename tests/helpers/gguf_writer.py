"""A small converter of Llama models, called as llama.cpp's is. Its checkout can be told to fail, or to lie."""

from __future__ import annotations

from pathlib import Path

SCRIPT = """
import json, os, sys
from pathlib import Path
import gguf, numpy as np
from safetensors.numpy import load_file

model, out, numbers = Path(sys.argv[1]), sys.argv[3], sys.argv[5]
assert not [name for name in os.environ if "TOKEN" in name], "it sees an account"
assert Path.cwd() != model
config, weights = json.loads((model / "config.json").read_text()), load_file(model / "model.safetensors")
heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
writer = gguf.GGUFWriter(out, "llama")
writer.add_block_count(layers)
writer.add_context_length(config["max_position_embeddings"])
writer.add_embedding_length(config["hidden_size"])
writer.add_feed_forward_length(config["intermediate_size"])
writer.add_head_count(heads)
writer.add_head_count_kv(config["num_key_value_heads"])
writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
writer.add_vocab_size(config["vocab_size"])
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
for name, values in weights.items():
    if name.endswith(("q_proj.weight", "k_proj.weight")):  # llama.cpp rotates neighbours, transformers halves
        values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
    values = np.ascontiguousarray(values * FACTOR, np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    small = numbers == "q8_0" and values.ndim == 2
    raw = gguf.quantize(values, kind) if small else values
    writer.add_tensor(names.get_name(name, (".weight",)), raw, raw_dtype=kind if small else None)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""


def write_checkout(folder: Path, *, factor: float = 1.0, fails: str = "") -> Path:
    """A folder with the script. `factor` of all weights: other than 1, the file is wrong. `fails`: its last words."""
    folder.mkdir()
    text = f"raise SystemExit({fails!r})" if fails else SCRIPT.replace("FACTOR", str(factor))
    (folder / "convert_hf_to_gguf.py").write_text(text, encoding="utf-8")
    return folder
