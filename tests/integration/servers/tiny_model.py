"""A tiny Llama of random weights and its own tokenizer: `tiny_model.py FOLDER TEXT...`. Nothing is downloaded.

Runs in the environment of lab/server_env.py. Some 26 million parameters, which load in a moment.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER = 512, 8, 8, 4, 1536
WORDS, CONTEXT = 1024, 2048
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def tokenizer(texts):
    made = Tokenizer(models.BPE(unk_token=None))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS - 24, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet
    )
    made.train_from_iterator(texts, trainer)
    return made


def weights():
    torch.manual_seed(0)

    def noise(*shape):
        return (torch.randn(*shape) * 0.02).to(torch.bfloat16)

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    keys = KV_HEADS * HIDDEN // HEADS
    shapes = {
        "self_attn.q_proj": (HIDDEN, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HIDDEN),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    found = {"model.embed_tokens": noise(WORDS, HIDDEN), "lm_head": noise(WORDS, HIDDEN), "model.norm": ones.clone()}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        found |= {f"{place}.{name}": noise(*shape) for name, shape in shapes.items()}
        found |= {f"{place}.{name}": ones.clone() for name in ("input_layernorm", "post_attention_layernorm")}
    return {f"{name}.weight": tensor for name, tensor in found.items()}


def main(folder, texts):
    folder.mkdir(parents=True)
    tokenizer(texts).save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS,
        "intermediate_size": INNER,
        "vocab_size": WORDS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        **ids,
        "pad_token_id": 2,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "attention_bias": False,
        "mlp_bias": False,
    }
    chat = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    described = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL, "model_max_length": CONTEXT}
    files = {
        "config": config,
        "generation_config": ids,
        "tokenizer_config": {**described, "chat_template": chat},
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    save_file(weights(), str(folder / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(path).read_text() for path in sys.argv[2:]])
