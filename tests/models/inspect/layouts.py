"""More pairs that fit: every family's own layout that pairs.py leaves out."""

from collections.abc import Callable

from tests.checkpoints import Bits, llama_tensors
from tests.models.inspect.pairs import (
    DRAFT_IDS,
    EMBEDDING,
    PAIRS,
    RANK,
    VD,
    Config,
    H,
    L,
    Side,
    Tensors,
    Two,
    V,
    block_tensors,
    dflash,
    eagle3,
    layer,
    layer_config,
    maps,
    target,
    target_config,
)


def spoken(two: Two) -> Two:
    """With a target whose output head is known, as block drafters copy it."""
    two.target.tensors["lm_head.weight"] = EMBEDDING
    return two


def eagle3_deepspec() -> Side:
    """DeepSpec: five features, norms of queries and keys, the target's ends copied, the whole vocabulary."""
    config = layer_config(
        architectures=["Qwen3Eagle3Model"], model_type="qwen3", num_target_layers=L, target_layer_ids=[1, 3, 5, 7, 9],
        ttt_length=7, step_loss_decay=0.8,
    )  # fmt: skip
    tensors: Tensors = {
        "embed_tokens.weight": EMBEDDING, "fc.weight": ("BF16", (H, 5 * H)), **layer("layers.0", inputs=2, normed=True),
        "layers.0.hidden_norm.weight": ("BF16", (H,)), "norm.weight": ("BF16", (H,)), "lm_head.weight": EMBEDDING,
    }  # fmt: skip
    return Side(config, tensors, tokenizer=False)


def eagle3_whole() -> Side:
    """An EAGLE-3 head that drafts the whole vocabulary and borrows the target's output head."""
    side = eagle3()
    side.config["draft_vocab_size"] = V
    for name in ("lm_head.weight", "d2t", "t2d"):
        del side.tensors[name]
    return side


def peagle() -> Side:
    """P-EAGLE in SafeAILab's names: a plain layer after the first, and a feature for slots not known yet."""
    side = eagle3()
    side.config |= {"parallel_drafting": True, "num_hidden_layers": 2}
    tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in side.tensors.items()}
    side.tensors = {**tensors, **layer("layers.1"), "mask_hidden": ("BF16", (1, 1, 3 * H))}
    return side


def eagle() -> Side:
    """EAGLE-1: one feature and the embedding joined, and a layer without a norm before its attention."""
    config = layer_config(architectures=["LlamaForCausalLMEagle"], model_type="llama")
    tensors: Tensors = {"fc.weight": ("BF16", (H, 2 * H)), "fc.bias": ("BF16", (H,)), **layer("layers.0")}
    del tensors["layers.0.input_layernorm.weight"]
    return Side(config, {**tensors, "embed_tokens.weight": EMBEDDING}, tokenizer=False)


def dflash2() -> Side:
    """z-lab's DFlash2: convolutions of two taps over groups of 16 channels, and a selector of rank 16."""
    side = dflash()
    side.config |= {"architectures": ["DFlash2DraftModel"], "is_causal": False}
    side.config["dflash_config"] |= {
        "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": RANK, "selector_top_k": 16,
    }  # fmt: skip
    for i in range(2):
        for part in ("attention_conv", "mlp_conv"):
            side.tensors[f"layers.{i}.{part}.base_kernel"] = ("BF16", (2, 2, H))
            side.tensors[f"layers.{i}.{part}.kernel_projection.weight"] = ("BF16", (16, H))
    for part, shape in (("predecessor_codebook", (V, RANK)), ("successor_codebook", (V, RANK)),
                        ("hidden_projection.weight", (RANK, H))):  # fmt: skip
        side.tensors[f"candidate_selector.{part}"] = ("BF16", shape)
    return side


def domino() -> Side:
    """SpecForge's Domino: a state of 24 and an embedding of 12."""
    side = dflash()
    side.config["dflash_config"] |= {"projector_type": "domino", "emb_dim": 12, "gru_hidden_dim": 24,
                                     "shift_label": True}  # fmt: skip
    for name, shape in (("prefix_gru.weight_ih_l0", (72, H)), ("prefix_gru.weight_hh_l0", (72, 24)),
                        ("embed_proj.0.weight", (12, H + 24)), ("embed_proj.2.weight", (V, 12))):  # fmt: skip
        side.tensors[name] = ("BF16", shape)
    return side


def speculators_config(kind: str, **more: object) -> Config:
    """The frame of a block drafter's config in the speculators library."""
    return {
        "architectures": [{"dflash": "DFlashSpeculator", "dspark": "DSparkSpeculator"}[kind]],
        "speculators_model_type": kind, "draft_vocab_size": VD, "block_size": 8, "target_hidden_size": H,
        "aux_hidden_state_layer_ids": [2, 6, 10], "mask_token_id": V - 1, "tie_word_embeddings": False,
        "transformer_layer_config": layer_config(model_type="qwen3", num_hidden_layers=2),
        "speculators_config": {
            "algorithm": kind, "verifier": {"name_or_path": "target", "architectures": ["Qwen3ForCausalLM"]},
        },
        **more,
    }  # fmt: skip


def own_ends() -> Tensors:
    """Embedding, reduced head and maps, as the speculators library stores them."""
    return {"embed_tokens.weight": EMBEDDING, "lm_head.weight": ("BF16", (VD, H)), **maps()}


def dflash_speculators() -> Side:
    """The speculators library's DFlash, with a reduced vocabulary."""
    config = speculators_config("dflash", sample_from_anchor=False)
    return Side(config, {**block_tensors(), **own_ends()}, tokenizer=False)


def markov(
    rows: int = V, at: str = "markov_head.", width: int = H + RANK, confidence: str = "confidence_head.proj"
) -> Tensors:
    """DSpark's serial head and its confidence head."""
    return {
        f"{at}markov_w1.weight": ("BF16", (V, RANK)), f"{at}markov_w2.weight": ("BF16", (rows, RANK)),
        f"{confidence}.weight": ("BF16", (1, width)), f"{confidence}.bias": ("BF16", (1,)),
    }  # fmt: skip


def dspark_speculators() -> Side:
    """The speculators library's DSpark: predecessors over the whole vocabulary, successors over the reduced one."""
    config = speculators_config(
        "dspark", sample_from_anchor=True, markov_rank=RANK, markov_head_type="vanilla", enable_confidence_head=True,
        confidence_head_with_markov=True,
    )  # fmt: skip
    return Side(config, {**block_tensors(), **own_ends(), **markov(rows=VD)}, tokenizer=False)


def dspark_modelopt() -> Side:
    """Model-Optimizer's DSpark: DFlash's class name, everything nested, heads at the root."""
    config = layer_config(
        architectures=["DFlashDraftModel"], model_type="qwen3", num_hidden_layers=2, block_size=7, num_target_layers=L,
        dflash_config={
            "mask_token_id": V - 1, "target_layer_ids": [1, 5, 9], "projector_type": "dspark", "shift_label": True,
            "markov_rank": RANK, "markov_head_type": "gated", "use_confidence_head": True,
        },
    )  # fmt: skip
    gate: Tensors = {"gate_proj.weight": ("BF16", (RANK, H + RANK)), "gate_proj.bias": ("BF16", (RANK,))}
    heads = markov(at="", confidence="confidence_proj")
    return Side(config, {**block_tensors(), **heads, **gate}, tokenizer=False)


def dspark_specforge() -> Side:
    """SpecForge's DSpark before it is normalised: nested keys, and in old files `logit_head`."""
    config = layer_config(
        architectures=["DSparkDraftModel"], model_type="qwen3", num_hidden_layers=2, block_size=7, num_target_layers=L,
        dflash_config={
            "mask_token_id": V - 1, "target_layer_ids": [1, 5, 9], "projector_type": "dspark", "markov_rank": RANK,
            "markov_head_type": "rnn", "confidence_head_alpha": 0.0,
        },
    )  # fmt: skip
    joint: Tensors = {
        "logit_head.joint_proj.weight": ("BF16", (3 * RANK, 2 * RANK + H)),
        "logit_head.joint_proj.bias": ("BF16", (3 * RANK,)),
    }
    heads = {name: tensor for name, tensor in markov(at="logit_head.").items() if "confidence" not in name}
    return Side(config, {**block_tensors(), **heads, **joint}, tokenizer=False)


def mtp_namespace() -> Side:
    """A target with its module in a namespace, in the way of Qwen3-Next and Qwen3.5."""
    side = target(mtp_num_hidden_layers=1)
    side.tensors |= layer("mtp.layers.0", normed=True)
    side.tensors |= {
        "mtp.fc.weight": ("BF16", (H, 2 * H)), "mtp.norm.weight": ("BF16", (H,)),
        "mtp.pre_fc_norm_embedding.weight": ("BF16", (H,)), "mtp.pre_fc_norm_hidden.weight": ("BF16", (H,)),
    }  # fmt: skip
    return side


def mtp_file() -> Side:
    """The speculators library's MTP module, in a file of its own."""
    config = {
        "architectures": ["MTPDraftModel"], "speculators_model_type": "mtp", "num_nextn_predict_layers": 1,
        "transformer_layer_config": layer_config(model_type="qwen3"),
    }  # fmt: skip
    tensors = layer("mtp_layers.0", normed=True)
    for name, shape in (
        ("input_proj", (H, 2 * H)), ("token_layernorm", (H,)), ("hidden_layernorm", (H,)), ("final_layernorm", (H,)),
    ):  # fmt: skip
        tensors[f"mtp_layers.0.{name}.weight"] = ("BF16", shape)
    return Side(config, tensors, tokenizer=False)


def quantized_target() -> Side:
    """Packed 8-bit projections with their scales; head and embedding are left out, as the list says."""
    config = target_config(
        quantization_config={"quant_method": "fp8", "bits": 8, "ignored_layers": ["lm_head", "model.layers.12"]},
        num_nextn_predict_layers=1,
    )
    side = Side(config, dict(llama_tensors(config)))
    for name, tensor in list(side.tensors.items()):
        assert not isinstance(tensor, Bits)
        if name.endswith("_proj.weight"):
            side.tensors[name] = ("F8_E4M3", tensor[1] if isinstance(tensor, tuple) else tensor.shape)
            side.tensors[name + "_scale"] = ("F32", (1,))
    module = layer(f"model.layers.{L}", normed=True)
    for part, shape in (("eh_proj", (H, 2 * H)), ("enorm", (H,)), ("hnorm", (H,)), ("shared_head.norm", (H,))):
        module[f"model.layers.{L}.{part}.weight"] = ("BF16", shape)
    side.tensors |= module
    return side


ALL: dict[str, Callable[[], Two]] = {
    **PAIRS,
    "eagle3_whole": lambda: Two(target(), eagle3_whole(), {"method": "eagle3"}),
    "eagle3_deepspec": lambda: spoken(Two(target(), eagle3_deepspec(), {"method": "eagle3"})),
    "dflash_speculators": lambda: spoken(Two(target(), dflash_speculators(), {"depth": 7})),
    "dspark_speculators": lambda: spoken(Two(target(), dspark_speculators(), {"depth": 8})),
    "dspark_modelopt": lambda: Two(target(), dspark_modelopt(), {"depth": 7}),
    "dspark_specforge": lambda: Two(target(), dspark_specforge(), {"depth": 7}),
    "peagle": lambda: Two(target(), peagle(), {"method": "peagle"}),
    "eagle": lambda: Two(target(), eagle(), {"method": "eagle"}),
    "dflash2": lambda: Two(target(), dflash2(), {"method": "dflash2", "depth": 7}),
    "domino": lambda: Two(target(), domino(), {"method": "domino", "depth": 8}),
    "mtp_namespace": lambda: Two(mtp_namespace(), None, {"method": "mtp", "depth": 1}),
    "mtp_file": lambda: Two(target(), mtp_file(), {"method": "mtp", "depth": 1}),
    "mtp_quantized": lambda: Two(quantized_target(), None, {"method": "mtp", "depth": 1}),
    "eagle3_on_quantized": lambda: Two(quantized_target(), eagle3(), {"method": "eagle3"}),
}

__all__ = ["ALL", "DRAFT_IDS", "VD"]
