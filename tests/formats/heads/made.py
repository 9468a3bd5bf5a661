"""Small heads of every family with every option, written as that family writes them, and a target to go with them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads.detect import detect
from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import canonical
from codraft.formats.heads.meaning import meaning_of
from codraft.formats.heads.options import block_options, eagle3_options, layer_options, layer_windows
from codraft.formats.heads.read import read_head
from codraft.formats.safetensors import DTYPE_BITS, read_raw

from tests.checkpoints import Bits, Tensor, random_bytes, write_checkpoint

Config = dict[str, Any]
Draw = st.DrawFn
HIDDEN, HEADS, KV, WIDTH, FFN, V, VD, L, RANK = 16, 4, 2, 4, 24, 40, 12, 10, 6
WIDE = 24
SLIDING, FULL = "sliding_attention", "full_attention"
EAGLE3 = ("safeailab", "modelopt", "speculators", "deepspec")
DFLASH = ("zlab", "speculators")
DSPARK = ("deepspec", "specforge", "modelopt", "speculators")


def filled(name: str, dtype: str, *shape: int, seed: int = 0) -> Bits:
    """Random bytes of a tensor."""
    generator = np.random.default_rng([seed, *name.encode()])
    size = int(np.prod(shape)) * DTYPE_BITS[dtype] // 8
    return Bits(dtype, shape, random_bytes(generator, dtype, size))


EMBEDDING, LM_HEAD = filled("embedding", "BF16", V, HIDDEN), filled("head", "BF16", V, HIDDEN)


def write_target(folder: Path, *, hidden: int = HIDDEN, tied: bool = False) -> Path:
    """A target as far as a head needs it."""
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": L,
              "hidden_size": hidden, "vocab_size": V, "tie_word_embeddings": tied}  # fmt: skip
    tensors: dict[str, Tensor] = {"model.embed_tokens.weight": EMBEDDING, "model.norm.weight": ("BF16", (hidden,))}
    return write_checkpoint(folder, config, tensors | ({} if tied else {"lm_head.weight": LM_HEAD}))


@dataclass
class Made:
    """A head in the making."""

    config: Config
    tensors: dict[str, Tensor]

    def write(self, folder: Path, shards: int = 1) -> Path:
        """The checkpoint as files."""
        return write_checkpoint(folder, self.config, self.tensors, shards=shards)


def layer_keys(draw: Draw, layers: int, **more: Any) -> Config:
    """The keys of decoder layers, some of them in either of two spellings."""
    rope: Config = draw(st.sampled_from([
        {"rope_theta": 10000.0}, {"rope_theta": 500000, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, {},
    ]))  # fmt: skip
    return {
        "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV,
        "head_dim": WIDTH, "intermediate_size": FFN, "vocab_size": V, "max_position_embeddings": 512,
        "rms_norm_eps": draw(st.sampled_from([1e-6, 1e-5])), "hidden_act": "silu",
        "attention_bias": draw(st.booleans()), "mlp_bias": draw(st.booleans()), "initializer_range": 0.02,
        "an_unknown_key": {"kept": True}, **rope, **more,
    }  # fmt: skip


def layer(at: str, config: Config, dtype: str, *, inputs: int = 1, normed: bool = False) -> dict[str, Tensor]:
    """A decoder layer's tensors."""
    q, kv = HEADS * WIDTH, KV * WIDTH
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (q, inputs * HIDDEN), "self_attn.k_proj.weight": (kv, inputs * HIDDEN),
        "self_attn.v_proj.weight": (kv, inputs * HIDDEN), "self_attn.o_proj.weight": (HIDDEN, q),
        "mlp.gate_proj.weight": (FFN, HIDDEN), "mlp.up_proj.weight": (FFN, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, FFN), "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
    }  # fmt: skip
    if config["attention_bias"]:
        shapes |= {f"self_attn.{p}_proj.bias": shapes[f"self_attn.{p}_proj.weight"][:1] for p in "qkvo"}
    if config["mlp_bias"]:
        shapes |= {f"mlp.{p}_proj.bias": shapes[f"mlp.{p}_proj.weight"][:1] for p in ("gate", "up", "down")}
    if normed:
        shapes |= {"self_attn.q_norm.weight": (WIDTH,), "self_attn.k_norm.weight": (WIDTH,)}
    return {f"{at}.{part}": filled(f"{at}.{part}", dtype, *shape) for part, shape in shapes.items()}


def maps(draw: Draw, *, marks: bool) -> dict[str, Tensor]:
    """Offsets of a reduced vocabulary, and with `marks` t2d."""
    ids = np.sort(np.array(draw(st.lists(st.integers(0, V - 1), min_size=VD, max_size=VD, unique=True))))
    found: dict[str, Tensor] = {"d2t": (ids - np.arange(VD)).astype(np.int64)}
    return found | ({"t2d": np.isin(np.arange(V), ids)} if marks else {})


def quantized(draw: Draw, tensors: dict[str, Tensor], config: Config) -> None:
    """Sometimes: fc in eight bits with a scale."""
    if draw(st.booleans()):
        return
    fc = tensors["fc.weight"]
    assert isinstance(fc, Bits)
    tensors["fc.weight"] = filled("fc8", "F8_E4M3", *fc.shape)
    tensors["fc.weight_scale"] = filled("scale", "F32", 1)
    config["quantization_config"] = {"quant_method": "fp8", "ignore": ["lm_head", "layers.0.self_attn.q_proj"]}


@st.composite
def eagle3(draw: Draw, family: str, *, plain: bool = False) -> Made:
    """An EAGLE-3 head with any options that its family has words for; `plain`: that every family has."""
    flat, library = family in ("safeailab", "modelopt"), family == "speculators"
    layers = 1 if family == "safeailab" or plain else draw(st.integers(1, 2))
    normed = family == "deepspec" or (library and not plain and draw(st.booleans()))
    config = layer_keys(draw, layers, model_type="qwen3" if normed else "llama")
    dtype = draw(st.sampled_from(["BF16", "F16", "F32"]))
    ids: list[int] = sorted(draw(st.lists(st.integers(-1, L - 2), min_size=3, max_size=3, unique=True)))
    if not (flat or plain):
        ids = sorted(draw(st.lists(st.integers(-1, L - 2), min_size=1, max_size=4, unique=True)))
    wide = family != "deepspec" and draw(st.booleans())
    target = WIDE if wide else HIDDEN
    reduced = family != "deepspec" and draw(st.booleans())
    doubled = family == "deepspec" or (family == "modelopt" and layers == 2 and draw(st.booleans()))
    norms = "none" if plain else draw(st.sampled_from(["none", "before_fc", "fc_norm"]))
    tensors: dict[str, Tensor] = {"fc.weight": filled("fc", dtype, HIDDEN, len(ids) * target)}
    for i in range(layers):
        at, two = ("midlayer" if family == "safeailab" else f"layers.{i}"), i == 0 or doubled
        tensors |= layer(at, config, dtype, inputs=1 + two, normed=normed)
        if two:
            tensors[f"{at}.hidden_norm.weight"] = filled(f"{at}.hidden", dtype, HIDDEN)
    tensors["norm.weight"] = filled("norm", dtype, HIDDEN)
    own_embedding = wide or library or family == "deepspec" or draw(st.booleans())
    if own_embedding:
        tensors["embed_tokens.weight"] = filled("own", dtype, V, HIDDEN) if wide else EMBEDDING
    if reduced:
        # Some publishers leave t2d out.
        marked = library or (family == "safeailab" and draw(st.booleans()))
        tensors |= {"lm_head.weight": filled("lm", dtype, VD, HIDDEN), **maps(draw, marks=marked)}
    elif not flat or draw(st.booleans()):
        tensors["lm_head.weight"] = filled("lm", dtype, V, HIDDEN)
    if norms == "fc_norm" and family in ("safeailab", "speculators"):
        tensors |= {f"fc_norm.{i}.weight": filled(f"n{i}", dtype, target) for i in range(len(ids))}
    elif norms == "before_fc" and family in ("modelopt", "speculators"):
        tensors["input_norm.weight"] = filled("before", dtype, len(ids) * target)
    else:
        norms = "none"
    quantized(draw, tensors, config)
    config |= {"target_hidden_size": target} if wide and flat else {}
    config = eagle3_config(draw, family, config, ids, norms, tensors, target if wide else None, doubled)
    return Made(settled(config) if plain else config, tensors)


def settled(config: Config) -> Config:
    """Switches as every family has them."""
    off = {"norm_before_residual": False, "norm_output": False} if "speculators_model_type" in config else {}
    found = {key: value for key, value in config.items() if key != "norm_output"} | off
    if "use_last_layernorm" in found.get("eagle_config", {}):
        found["eagle_config"] = {**found["eagle_config"], "use_last_layernorm": True}
    return found


def eagle3_config(
    draw: Draw, family: str, config: Config, ids: list[int], norms: str, tensors: dict[str, Tensor], wide: int | None,
    doubled: bool,
) -> Config:  # fmt: skip
    """The config in the family's own words."""
    reduced = "d2t" in tensors
    whole = {"tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    if family == "speculators":
        quantization = (
            {"quantization_config": config.pop("quantization_config")} if "quantization_config" in config else {}
        )
        return {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
            "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "t", "architectures": []}},
            "transformer_layer_config": config, "draft_vocab_size": VD if reduced else V,
            "norm_before_residual": draw(st.booleans()), "target_hidden_size": wide,
            "eagle_aux_hidden_state_layer_ids": [i + 1 for i in ids], "norm_before_fc": norms == "before_fc",
            "fc_norm": norms == "fc_norm", "norm_output": draw(st.booleans()), **whole, **quantization,
        }  # fmt: skip
    if family == "deepspec":
        return {"architectures": ["Qwen3Eagle3Model"], **config, "num_target_layers": L, "target_layer_ids": ids,
                "ttt_length": 7, **whole}  # fmt: skip
    nested: Config = {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}
    if family == "modelopt":
        nested |= {"use_input_layernorm_in_first_layer": True, "use_last_layernorm": draw(st.booleans()),
                   "use_mtp_layernorm": False, "next_layer_regular": not doubled}  # fmt: skip
        if norms == "before_fc":
            nested["norm_before_fc"] = True
    config = {"architectures": ["LlamaForCausalLMEagle3"], **config, **whole}
    if "lm_head.weight" in tensors or family == "modelopt":
        config["draft_vocab_size"] = VD if reduced else V
    if family == "safeailab":
        config |= {"fc_norm": True} if norms == "fc_norm" else {}
        said = draw(st.sampled_from([None, True, False]))
        config |= {} if said is None else {"norm_output": said}
        if draw(st.booleans()):
            return {**config, "eagle_aux_hidden_state_layer_ids": [i + 1 for i in ids]}
    return {**config, "eagle_config": nested}


def windows(draw: Draw, config: Config) -> bool:
    """Some layers, all or none with a window. Returns whether any has one."""
    kinds = draw(st.lists(st.sampled_from([SLIDING, FULL]), min_size=2, max_size=2))
    config["layer_types"] = kinds
    if SLIDING in kinds:
        config |= {"sliding_window": 32, "use_sliding_window": True}
    return SLIDING in kinds


def backbone(config: Config, dtype: str, features: int, target: int) -> dict[str, Tensor]:
    """A block drafter's tensors without heads."""
    tensors: dict[str, Tensor] = {"fc.weight": filled("fc", dtype, HIDDEN, features * target)}
    for i in range(2):
        tensors |= layer(f"layers.{i}", config, dtype, normed=True)
    return tensors | {f"{name}.weight": filled(name, dtype, HIDDEN) for name in ("hidden_norm", "norm")}


@st.composite
def block(draw: Draw, mechanism: str, family: str, *, plain: bool = False) -> Made:
    """A DFlash or DSpark head with any options that its family has words for; `plain`: that every family has."""
    library = family == "speculators"
    config = layer_keys(draw, 2, model_type="qwen3")
    any_window = windows(draw, config) if family != "deepspec" and not plain else False
    if family == "deepspec" or plain:
        config["layer_types"] = [FULL, FULL]
    dtype = draw(st.sampled_from(["BF16", "F16", "F32"]))
    ids = sorted(draw(st.lists(st.integers(0, L - 2), min_size=1, max_size=4, unique=True)))
    wide = library and not plain and draw(st.booleans())
    tensors = backbone(config, dtype, len(ids), WIDE if wide else HIDDEN)
    quantized(draw, tensors, config)
    reduced = library and not plain and draw(st.booleans())
    if library or family == "deepspec":
        tensors["embed_tokens.weight"] = filled("own", dtype, V, HIDDEN) if wide else EMBEDDING
        tensors["lm_head.weight"] = LM_HEAD
    if reduced:
        tensors |= {"lm_head.weight": filled("lm", dtype, VD, HIDDEN), **maps(draw, marks=True)}
    rank = (
        RANK if mechanism == "dspark" and (family in ("specforge", "modelopt") or plain or draw(st.booleans())) else 0
    )
    serial = markov(draw, family, rank, plain) if mechanism == "dspark" else {}
    if mechanism == "dspark":
        tensors |= markov_tensors(serial, family, dtype, VD if reduced else V)
    nested: Config = {"mask_token_id": V - 1, "target_layer_ids": ids}
    causal = None if plain else draw(st.sampled_from([None, True, False]))
    if causal is not None and family in ("zlab", "specforge", "modelopt"):
        nested["causal"] = causal
    whole = {"tie_word_embeddings": False, "dtype": "bfloat16"}
    flat = {**config, "block_size": 5, "num_target_layers": L, **whole}
    if family == "zlab":
        if draw(st.booleans()):
            nested["shift_label"] = True
        return Made({"architectures": ["DFlashDraftModel"], **flat, "dflash_config": nested}, tensors)
    if family == "deepspec":
        top = {"mask_token_id": V - 1, "target_layer_ids": ids, "num_anchors": 512, **serial}
        return Made({"architectures": ["Qwen3DSparkModel"], **flat, **top}, tensors)
    if family == "specforge":
        nested |= {"projector_type": "dspark", "attention_mode": "gqa", **serial}
        return Made({"architectures": ["DSparkDraftModel"], **flat, "dflash_config": nested}, tensors)
    if family == "modelopt":
        nested |= {"projector_type": "dspark", "shift_label": True, **serial}
        return Made({"architectures": ["DFlashDraftModel"], **flat, "dflash_config": nested}, tensors)
    quantization = {"quantization_config": config.pop("quantization_config")} if "quantization_config" in config else {}
    return Made({
        "architectures": [f"D{mechanism[1].upper()}{mechanism[2:]}Speculator"], "speculators_model_type": mechanism,
        "speculators_config": {"algorithm": mechanism}, "transformer_layer_config": config,
        "draft_vocab_size": VD if reduced else V, "block_size": 5, "target_hidden_size": WIDE if wide else None,
        "aux_hidden_state_layer_ids": [i + 1 for i in ids], "mask_token_id": V - 1,
        "sliding_window_non_causal": draw(st.booleans()) if any_window else True,
        "sample_from_anchor": mechanism == "dspark" if plain else draw(st.booleans()),
        **serial, **whole, **quantization,
    }, tensors)  # fmt: skip


def markov(draw: Draw, family: str, rank: int, plain: bool) -> Config:
    """A serial head and a confidence head in the family's keys."""
    kind, confidence = draw(st.sampled_from(["vanilla", "gated", "rnn"])), draw(st.booleans())
    if family == "modelopt":
        return {"markov_rank": rank, "markov_head_type": kind, "use_confidence_head": confidence}
    with_markov = plain or (rank > 0 and draw(st.booleans()))
    return {"markov_rank": rank, "markov_head_type": kind, "enable_confidence_head": confidence,
            "confidence_head_with_markov": with_markov}  # fmt: skip


def markov_tensors(serial: Config, family: str, dtype: str, rows: int) -> dict[str, Tensor]:
    """Their tensors: at the root in Model-Optimizer's files."""
    rank, kind = serial["markov_rank"], serial["markov_head_type"]
    shapes: dict[str, tuple[int, ...]] = {}
    if rank:
        shapes |= {"markov_head.markov_w1.weight": (V, rank), "markov_head.markov_w2.weight": (rows, rank)}
        if kind == "gated":
            shapes |= {"markov_head.gate_proj.weight": (rank, HIDDEN + rank), "markov_head.gate_proj.bias": (rank,)}
        if kind == "rnn":
            shapes["markov_head.joint_proj.weight"] = (3 * rank, 2 * rank + HIDDEN)
            shapes["markov_head.joint_proj.bias"] = (3 * rank,)
    if serial.get("enable_confidence_head") or serial.get("use_confidence_head"):
        joined = serial.get("confidence_head_with_markov", True)
        shapes |= {"confidence_head.proj.weight": (1, HIDDEN + joined * rank), "confidence_head.proj.bias": (1,)}
    root = family == "modelopt"
    return {
        (name.replace("markov_head.", "").replace("confidence_head.", "confidence_") if root else name):
        filled(name, dtype, *shape)
        for name, shape in shapes.items()
    }  # fmt: skip


Stored = dict[str, tuple[str, tuple[int, ...], bytes]]


def stored(folder: Path) -> Stored:
    """Every tensor of a checkpoint: type, shape, bytes."""
    point = open_checkpoint(str(folder))
    return {name: (i.dtype, i.shape, read_raw(point.source, i)) for name, i in point.tensors.items()}


def head_of(folder: Path) -> Head:
    """The head in a folder, as the inspector reads it."""
    point = open_checkpoint(str(folder))
    kind = detect(point.config, point.tensors)
    assert kind is not None
    return read_head(kind, point.config, point.tensors, "config.json")


def meaning(folder: Path) -> dict[str, Any]:
    """What the head in a folder means."""
    return meaning_of(head_of(folder))


def options_of(folder: Path) -> tuple[Any, ...]:
    """What the drafters take from the head in a folder: nothing of it goes through `meaning_of`."""
    head = head_of(folder)
    switches = eagle3_options(head) if head.mechanism == "eagle3" else block_options(head)
    layers, taps = head.taps[0].outputs, head.taps
    assert all(one.outputs == layers for one in taps)
    return switches, layer_options(head), layer_windows(head), layers, head.markov, head.target_hidden, head.reduced


def by_canonical(folder: Path) -> Stored:
    """The tensors under the names that all families share."""
    kind = head_of(folder).kind
    return {canonical(kind, name): tensor for name, tensor in stored(folder).items()}


def config_of(folder: Path) -> Config:
    """The config in a folder."""
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
