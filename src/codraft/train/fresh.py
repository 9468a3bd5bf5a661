"""Checkpoints to begin with: a whole drafter in a public layout, made from the target's own layers or from noise.

Training then opens it like any other drafter (`--from`), so what is trained is what an engine will load, from the first
step on. Layouts: EAGLE-3 as SafeAILab and SpecForge write it, DFlash as z-lab, DSpark as SpecForge, MTP as MiMo, an
external drafter as transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.spec import check_positive
from codraft.decode.hf.model import HFModel
from codraft.decode.target import Tap
from codraft.drafters.eagle3 import usual_taps
from codraft.formats.heads.head import HEAD
from codraft.train.kinds import Init, Kind

Tensors = dict[str, Tensor]
Config = dict[str, Any]
# Standard deviation of what is made of noise: that of Llama's own initialisation.
NOISE = 0.02
# Noise beside what is copied: small, so that the copy works as it is.
TRACE = 0.002
USUAL_MARKOV_RANK = 256
# A head is a few layers; more is a mistyped list.
MOST_LAYERS = 64
# Tokens by which the size of a layer's output is measured, where there is no text to measure it by.
PROBE = 64
# A channel that hardly moves is no smaller than this share of the others.
STILL = 1e-3
PARTS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is asked of a fresh drafter; None where the mechanism's usual choice stands.

    `layers` are a number, or of an external drafter those of the target's layers that it is made of, where there are
    several. `init`: copies of the target's layers behind joints that hand its hidden state on; the copies behind joints
    of noise; or noise alone. `target_ids` [V'] is a reduced vocabulary. `ffn` is the width of a head's feed-forward.
    `fc_norm`: each feature is normed before they are joined, which keeps what is large in some layers from drowning the
    rest.
    """

    init: Init = "target"
    seed: int = 0
    layers: tuple[int, ...] | None = None
    ffn: int | None = None
    taps: tuple[int, ...] | None = None
    fc_norm: bool = False
    target_ids: Tensor | None = None
    block_size: int | None = None
    mask_token_id: int | None = None
    markov_rank: int | None = None


def check_taps(taps: Sequence[int] | None, num_layers: int) -> None:
    """SpecError for a layer that the target has not."""
    outside = next((i for i in taps or () if not 0 <= i < num_layers), None)
    if outside is not None:
        raise SpecError(f"--taps: {outside} is none of the target's layers 0..{num_layers - 1}")


def check_shape(shape: Shape, kind: Kind, num_layers: int) -> None:
    """SpecError for what no drafter of this kind can be made with for a target of so many layers."""
    for name in ("ffn", "markov_rank"):
        check_positive(getattr(shape, name), f"--{name.replace('_', '-')}")
    check_taps(shape.taps, num_layers)
    layers = shape.layers
    if layers is None:
        return
    if len(layers) == 1:
        most = num_layers if kind.whole_model else MOST_LAYERS
        if not 1 <= layers[0] <= most:
            raise SpecError(f"--layers must be from 1 to {most}, a number of layers; got {layers[0]}")
    elif not kind.whole_model:
        raise SpecError(
            f"--layers is a number of layers here, from 1 to {MOST_LAYERS}; got {','.join(map(str, layers))}"
        )
    else:
        outside = next((i for i in layers if not 0 <= i < num_layers), None)
        if outside is not None:
            raise SpecError(f"--layers: {outside} is none of the target's layers 0..{num_layers - 1}")


class Source:
    """The target as something to copy from: its config in plain words, its layers, its ends."""

    def __init__(self, target: HFModel, text: Sequence[Sequence[int]] = ()) -> None:
        """`text`: rows of ids by which sizes are measured."""
        self.target = target
        self._states: dict[Tap, list[Tensor]] = {}
        self.rows = text or [[i % target.vocab_size for i in range(PROBE)]]
        self.text = target.model.config.get_text_config(decoder=True)
        shape = target.attention_shape()
        if shape is None:
            raise CapabilityError(
                f"{target.id}: its config names no attention heads, so no drafter can be made like it; adapt one with "
                "--from"
            )
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.hidden, self.num_layers = target.hidden_size, target.num_layers
        self.ffn = int(getattr(self.text, "intermediate_size", None) or 4 * self.hidden)

    def measure(self, taps: Sequence[Tap]) -> None:
        """Have the sizes of these layers' outputs ready, of one pass."""
        with torch.no_grad():
            self._states |= self.target.whole_rows(self.rows, taps)

    def sizes_of(self, tap: Tap) -> tuple[float, Tensor]:
        """Of a layer's output: its root mean square, and by how much each channel [H] varies. The first token of a row
        is left out, which in many models is far larger than all others."""
        if tap not in self._states:
            self.measure((tap,))
        states_TH = torch.cat([states[1:] for states in self._states[tap]]).float().cpu()
        spread_H = states_TH.std(0)
        return float(states_TH.square().mean(1).sqrt().median()), spread_H.clamp(min=STILL * float(spread_H.median()))

    def keys(self, **more: Any) -> Config:
        """Config keys of decoder layers like the target's."""
        text = self.text
        rope = dict(getattr(text, "rope_parameters", None) or {"rope_theta": getattr(text, "rope_theta", 10_000.0)})
        plain = rope.get("rope_type", "default") == "default"
        return {
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.target.vocab_size,
            "max_position_embeddings": int(getattr(text, "max_position_embeddings", 2048)),
            "rms_norm_eps": float(getattr(text, "rms_norm_eps", 1e-6)),
            "hidden_act": getattr(text, "hidden_act", "silu"),
            # Every loader reads this key; scaled positions need the whole part.
            **({"rope_theta": float(rope["rope_theta"])} if plain else {"rope_parameters": rope}),
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            **more,
        }


class Maker:
    """Tensors of a drafter in the making, from noise that a seed gives and from copies."""

    def __init__(self, source: Source, shape: Shape) -> None:
        self.source, self.shape = source, shape
        self.tensors: Tensors = {}
        self._noise = torch.Generator().manual_seed(shape.seed)

    def noise(self, *size: int, scale: float = NOISE) -> Tensor:
        """Normal numbers."""
        return torch.randn(*size, generator=self._noise) * scale

    def identity(self, rows: int, columns: int, at: int) -> Tensor:
        """[rows, columns] that hands on `rows` channels from column `at`, with a trace of noise everywhere."""
        if self.shape.init != "target":
            return self.noise(rows, columns)
        matrix = self.noise(rows, columns, scale=TRACE)
        matrix[:, at : at + rows] += torch.eye(rows)
        return matrix

    def joint(self, columns: Sequence[Tap]) -> Tensor:
        """[H, taps H] that reads features of several layers: hands the last on, or noise that gives every channel of
        every layer the same weight. A few channels of the late layers are hundreds of times larger than what early
        ones say, and drown it where all columns begin alike."""
        H = self.source.hidden
        if self.shape.init == "target":
            return self.identity(H, len(columns) * H, (len(columns) - 1) * H)
        self.source.measure(columns)
        spread = torch.cat([self.source.sizes_of(tap)[1] for tap in columns])
        return self.noise(H, len(spread), scale=len(spread) ** -0.5) / spread

    def layer(self, prefix: str, index: int, *, inputs: int = 1, ffn: int | None = None, qk_norm: bool = False) -> None:
        """A decoder layer under `prefix`, like the target's layer `index`. `inputs`: how many hidden sizes wide the
        attention reads; what is copied reads the last of them."""
        s = self.source
        H, width = s.hidden, ffn or s.ffn
        sizes = {
            "self_attn.q_proj": (s.heads * s.head_dim, inputs * H),
            "self_attn.k_proj": (s.kv_heads * s.head_dim, inputs * H),
            "self_attn.v_proj": (s.kv_heads * s.head_dim, inputs * H),
            "self_attn.o_proj": (H, s.heads * s.head_dim),
            "mlp.gate_proj": (width, H),
            "mlp.up_proj": (width, H),
            "mlp.down_proj": (H, width),
        }
        own = {} if self.shape.init == "random" else s.target.layer_tensors(index)
        for part, size in sizes.items():
            self.tensors[f"{prefix}{part}.weight"] = self._like(own.get(f"{part}.weight"), size)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            given = own.get(f"{norm}.weight")
            fits = given is not None and given.shape == (H,)
            self.tensors[f"{prefix}{norm}.weight"] = (
                given.float().clone() if fits and given is not None else torch.ones(H)
            )
        if qk_norm:
            for part in "qk":
                self.tensors[f"{prefix}self_attn.{part}_norm.weight"] = self._size_of(prefix, f"{part}_proj")

    def _like(self, given: Tensor | None, size: tuple[int, int]) -> Tensor:
        """A copy, cut or padded with a trace of noise to `size`; noise where there is nothing to copy."""
        if given is None or given.dim() != 2:
            return self.noise(*size)
        made = self.noise(*size, scale=TRACE)
        rows, columns = min(size[0], given.shape[0]), min(size[1], given.shape[1])
        made[:rows, size[1] - columns :] = given[:rows, :columns].float()
        return made

    def _size_of(self, prefix: str, projection: str) -> Tensor:
        """[D] ones times the usual size of a projection's output, which a norm behind it would take away: queries and
        keys of a layer without such norms set by it how sharp attention is. Inputs are taken for uncorrelated."""
        D = self.source.head_dim
        if self.shape.init == "random":
            return torch.ones(D)
        weight = (
            self.tensors[f"{prefix}self_attn.{projection}.weight"] * self.tensors[f"{prefix}input_layernorm.weight"]
        )
        return torch.full((D,), float(weight.square().sum(1).mean().sqrt()))

    def final_norm(self) -> Tensor:
        """The target's last norm."""
        weight = self.source.target.norm_weight()
        if self.shape.init == "random" or weight is None or weight.shape != (self.source.hidden,):
            return torch.ones(self.source.hidden)
        return weight.float().clone()


def eagle3(source: Source, shape: Shape) -> tuple[Config, Tensors]:
    """One layer over three fused features; its own output head over a reduced vocabulary [EAGLE-3]."""
    taps, make = shape.taps or usual_taps(source.num_layers), Maker(source, shape)
    H, ids = source.hidden, shape.target_ids
    make.layer("midlayer.", min(max(taps) + 1, source.num_layers - 1), inputs=2, ffn=shape.ffn)
    t = make.tensors
    # What the copied layer normed was the hidden state.
    t["midlayer.hidden_norm.weight"] = t["midlayer.input_layernorm.weight"].clone()
    t["midlayer.input_layernorm.weight"] = torch.ones(H)
    t["fc.weight"] = make.joint(taps)
    t["norm.weight"] = make.final_norm()
    if shape.fc_norm:
        # Each as large as it is in the target, so that what reads it finds what it would find without them.
        for i, tap in enumerate(taps):
            t[f"fc_norm.{i}.weight"] = torch.full((H,), source.sizes_of(tap)[0])
    config: Config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        **source.keys(intermediate_size=shape.ffn or source.ffn),
    }
    # The usual ones go without saying: engines agree on them, and read a list in two ways.
    if taps != usual_taps(source.num_layers):
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(taps), "use_aux_hidden_state": True}
    if shape.fc_norm:
        config["fc_norm"] = True
    if ids is not None:
        weight, _ = source.target.head_rows(ids.to(source.target.device))
        t[HEAD] = weight.float().cpu().clone()
        config["draft_vocab_size"] = len(ids)
        t["d2t"] = ids - torch.arange(len(ids))
        t["t2d"] = torch.zeros(source.target.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    return config, t


def block_taps(num_layers: int, count: int = 3) -> tuple[int, ...]:
    """Layers whose outputs a block head reads where none are named: EAGLE-3's three, so that one set of features
    serves both; z-lab's rule spreads any other number over the layers."""
    if count == len(usual_taps(num_layers)):
        return usual_taps(num_layers)
    if count == 1:
        return (num_layers // 2,)
    return tuple(round(1 + i * (num_layers - 4) / (count - 1)) for i in range(count))


def block(source: Source, shape: Shape, mechanism: str) -> tuple[Config, Tensors]:
    """Qwen3-like layers over a block of masks; embedding and output head are the target's [DFlash] [DSpark]."""
    taps = shape.taps or block_taps(source.num_layers)
    layers, make = (shape.layers or (2,))[0], Maker(source, shape)
    H, t = source.hidden, make.tensors
    for i in range(layers):
        make.layer(f"layers.{i}.", source.num_layers - layers + i, ffn=shape.ffn, qk_norm=True)
    t["fc.weight"] = make.joint(taps)
    t["hidden_norm.weight"] = t["layers.0.input_layernorm.weight"].clone()
    t["norm.weight"] = make.final_norm()
    nested: Config = {"mask_token_id": shape.mask_token_id, "target_layer_ids": list(taps)}
    config: Config = {
        "architectures": ["DFlashDraftModel" if mechanism == "dflash" else "DSparkDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        **source.keys(intermediate_size=shape.ffn or source.ffn, attention_bias=False),
        "layer_types": ["full_attention"] * layers,
        "num_target_layers": source.num_layers,
        "block_size": shape.block_size,
        "dflash_config": nested,
    }
    if mechanism == "dspark":
        rank, V = shape.markov_rank or USUAL_MARKOV_RANK, source.target.vocab_size
        nested |= {
            "projector_type": "dspark",
            "attention_mode": "mha" if source.kv_heads == source.heads else "gqa",
            "confidence_head_alpha": 1.0,
            "markov_rank": rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
        }
        t["markov_head.markov_w1.weight"] = make.noise(V, rank)
        # No bias before anything is learnt, and none ever for what is never seen.
        t["markov_head.markov_w2.weight"] = torch.zeros(V, rank)
        t["confidence_head.proj.weight"] = make.noise(1, H + rank)
        t["confidence_head.proj.bias"] = torch.zeros(1)
    return config, t


def mtp(source: Source, shape: Shape) -> tuple[Config, Tensors]:
    """One module like the target's last layer, in MiMo's layout, which has Llama's kind of layer [MiMo]."""
    make, at = Maker(source, shape), "model.mtp_layers.0."
    own = source.target.layer_tensors(source.num_layers - 1)
    unlike = next((name for name in own if name.removesuffix(".weight") not in PARTS), None)
    if unlike is not None:
        raise CapabilityError(
            f"{source.target.id}: a fresh MTP module can be made for layers of Llama's kind, and this target's have "
            f"{unlike}; train modules that it has with --from, or choose another mechanism"
        )
    make.layer(at, source.num_layers - 1, ffn=shape.ffn)
    t, H = make.tensors, source.hidden
    t[f"{at}token_layernorm.weight"] = torch.ones(H)
    t[f"{at}hidden_layernorm.weight"] = make.final_norm()
    if shape.init != "target":
        size, spread = source.sizes_of("final")
        t[f"{at}hidden_layernorm.weight"] = size / spread
    # The hidden state comes first.
    t[f"{at}input_proj.weight"] = make.identity(H, 2 * H, 0)
    t[f"{at}final_layernorm.weight"] = make.final_norm()
    config: Config = {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "mimo",
        "num_hidden_layers": source.num_layers,
        "num_nextn_predict_layers": 1,
        **source.keys(intermediate_size=shape.ffn or source.ffn, attention_bias=False),
    }
    return config, t


def external(source: Source, shape: Shape) -> tuple[Config, Tensors]:
    """A model of some of the target's layers, between the target's own ends."""
    chosen = shape.layers or (max(1, source.num_layers // 4),)
    if len(chosen) == 1:
        chosen = spread(source.num_layers, min(chosen[0], source.num_layers))
    config = source.target.model.config.to_dict()
    # Where the target lies on this machine.
    config.pop("_name_or_path", None)
    config["num_hidden_layers"] = len(chosen)
    kinds = config.get("layer_types")
    if isinstance(kinds, Sequence) and len(kinds) == source.num_layers:
        config["layer_types"] = [kinds[i] for i in chosen]
    return config, external_tensors(source.target.model.state_dict(), chosen)


def external_tensors(state: Mapping[str, Tensor], chosen: Sequence[int]) -> Tensors:
    """The target's tensors, of its layers the chosen ones, numbered anew."""
    made: Tensors = {}
    for name, value in state.items():
        head, middle, rest = name.partition("layers.")
        number, dot, tail = rest.partition(".")
        if not middle or not number.isdigit():
            made[name] = value
        for place, index in enumerate(chosen):
            if middle and number == str(index):
                made[f"{head}layers.{place}{dot}{tail}"] = value
    return {name: value.detach().clone() for name, value in made.items()}


def spread(num_layers: int, count: int) -> tuple[int, ...]:
    """So many layers, the first and the last among them, the others spread evenly."""
    if count == 1:
        return (num_layers - 1,)
    return tuple(round(i * (num_layers - 1) / (count - 1)) for i in range(count))


MAKERS: Mapping[str, Any] = {
    "eagle3": eagle3,
    "mtp": mtp,
    "dflash": lambda source, shape: block(source, shape, "dflash"),
    "dspark": lambda source, shape: block(source, shape, "dspark"),
    "external": external,
}
