"""What the config around MTP modules says of their graph: one row of a table for each family, and sizes of the layer.

Read without weights. Which tensors hold a module is mtp_layout.py's question.

Sources: the loaders and graphs of vLLM 0.32 (deepseek_mtp.py, glm4_moe_mtp.py, glm4_moe_lite_mtp.py, qwen3_next_mtp.py,
qwen3_5_mtp.py, mimo_mtp.py), the speculators library (models/mtp), decoder layers and defaults of transformers 5.19.
docs/mechanisms/mtp.md says where engines differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any, Literal

from codraft.core.errors import NotRunError, SpecError
from codraft.formats.fields import Fields, shown
from codraft.formats.heads.head import COUNTS, EPS, layer_part
from codraft.formats.heads.options import activation_of
from codraft.formats.heads.rope import rope_part

Feedback = Literal["pre_norm", "post_norm"]
# Norms of latents keep this whatever the config says, in DeepSeek's own code; engines take the config's.
LATENT_EPS = 1e-6
# Rope kinds that do not scale.
PLAIN_ROPES = ("default", None)
MOST_MODULES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a family's modules do, beyond sizes.

    `join` is the projection's name, a key of formats/mtp.py's JOINS. `reads` is the target's last hidden state after
    its last norm, or the stream before that. `hidden_first`: the projection takes [hidden; embedding]. `blank_first`:
    the embedding of row 0 is zeroed. `unit_offset`: norms multiply by 1 + w. `feedback`: what a step hands to the next,
    the block's output before or after the module's last norm. `rotated`: share of a head that turns where the config
    is silent. `qk_norm`: None where `use_qk_norm` says it. `scores`: how experts are scored; `mixed` by the name of
    the shared expert.
    """

    join: Literal["eh_proj", "fc", "input_proj"]
    attention: Literal["grouped", "gated", "latent"]
    feedback: Feedback
    reads: Literal["final", "last_layer"] = "final"
    hidden_first: bool = False
    blank_first: bool = False
    unit_offset: bool = False
    rotated: float = 1.0
    qk_norm: bool | None = False
    attention_bias: bool = False
    scores: Literal["sigmoid", "softmax"] = "sigmoid"


DEEPSEEK = Dialect(join="eh_proj", attention="latent", feedback="post_norm", blank_first=True)
# vLLM hands on the block's output here, other engines the normed one.
GLM = replace(DEEPSEEK, feedback="pre_norm")
QWEN = Dialect(
    join="fc", attention="gated", feedback="post_norm", unit_offset=True, rotated=0.25, qk_norm=True, scores="softmax"
)
MIMO = Dialect(
    join="input_proj", attention="grouped", feedback="post_norm", reads="last_layer", hidden_first=True,
    blank_first=True, attention_bias=True,
)  # fmt: skip
# By the `model_type` of the part with the layers.
NATIVE: Mapping[str, Dialect] = {
    "deepseek_v3": DEEPSEEK,
    "glm4_moe": replace(GLM, attention="grouped", rotated=0.5, qk_norm=None),
    "glm4_moe_lite": GLM,
    "qwen3_next": QWEN,
    "qwen3_5_text": QWEN,
    "qwen3_5_moe_text": QWEN,
    "mimo": MIMO,
}
# The speculators library writes the same modules in names of its own, and Qwen3 ones that no target has.
SPECULATORS: Mapping[str, Dialect] = {
    **{name: replace(row, join="input_proj") for name, row in NATIVE.items() if row.join == "fc"},
    "qwen3": Dialect(join="input_proj", attention="grouped", feedback="post_norm", qk_norm=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedShape:
    """Grouped-query attention; `gated` has a gate for every channel of its output, made with the queries. `bias` is
    that of queries, keys and values."""

    heads: int
    kv_heads: int
    head_dim: int
    rotated: int
    bias: bool
    output_bias: bool
    qk_norm: bool
    gated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Multi-head latent attention [DeepSeekV2]: keys and values of all heads in one latent of `kv_rank`, and `rotated`
    channels of a key that all heads share. `q_rank` None: queries without a latent. `scale` of the scores."""

    heads: int
    q_rank: int | None
    kv_rank: int
    plain: int
    rotated: int
    value: int
    bias: bool
    interleaved: bool
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsShape:
    """Routed experts of `width`, `top_k` of them a token, out of `top_groups` of `groups`; `shared_width` 0: no shared
    expert. `normed`: weights of the chosen sum to 1, before `scale`."""

    count: int
    top_k: int
    width: int
    shared_width: int
    groups: int
    top_groups: int
    scale: float
    normed: bool
    scores: Literal["sigmoid", "softmax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpOptions:
    """MTP modules of one checkpoint. `text` is the config's part with the layers, `file` names the config in errors.

    `declared` is how many modules the config counts, 0 where it counts none. `experts` is None where the config has
    none; a module's own tensors say whether it uses them.
    """

    family: str
    dialect: Dialect
    file: str
    text: Mapping[str, Any]
    hidden: int
    vocab_size: int
    num_layers: int
    declared: int
    eps: float
    act: str
    ffn: int
    attention: GroupedShape | LatentShape
    experts: ExpertsShape | None


def read_mtp(config: Mapping[str, Any], join: str, file: str) -> MtpOptions:
    """Options of modules whose projection is called `join`. SpecError for a family that codraft does not run."""
    part, path = layer_part(config)
    whole, text = Fields(config, file=file), Fields(part, path, file)
    family = text.text("model_type") or whole.text("model_type") or ""
    dialect = dialect_of(config, family, join, file)
    hidden = text.needed("hidden_size")
    options = MtpOptions(
        family=family,
        dialect=dialect,
        file=file,
        text=part,
        hidden=hidden,
        vocab_size=text.size("vocab_size") or whole.needed("vocab_size"),
        num_layers=text.needed("num_hidden_layers", highest=10_000),
        declared=counted(text, whole),
        eps=text.ratio("rms_norm_eps") or EPS,
        act=activation_of(text, "hidden_act"),
        ffn=text.size("intermediate_size") or 4 * hidden,
        attention=latent(text) if dialect.attention == "latent" else grouped(text, dialect, hidden),
        experts=experts(text, dialect),
    )
    if text.flag("use_sliding_window"):
        raise NotRunError(f"{file}: use_sliding_window is true, and codraft runs MTP modules with full attention only")
    return options


def dialect_of(config: Mapping[str, Any], family: str, join: str, file: str) -> Dialect:
    """The family's row."""
    table = SPECULATORS if config.get("speculators_model_type") is not None else NATIVE
    row = table.get(family)
    if row is None or row.join != join:
        known = ", ".join(table)
        raise NotRunError(
            f"{file}: MTP modules of model_type '{shown(family)}' with a projection called {join} are none that "
            f"codraft runs ({known}); measure them with an engine, or choose another mechanism"
        )
    return row


def counted(*parts: Fields) -> int:
    """Modules that the first part of a config that counts them counts, 0 where none does. SpecError for a count of 0,
    by which engines run none."""
    fields = next((fields for fields in parts if fields.key(*COUNTS)), None)
    return 0 if fields is None else fields.size(*COUNTS, highest=MOST_MODULES) or 0


def grouped(text: Fields, dialect: Dialect, hidden: int) -> GroupedShape:
    """Heads of Qwen, GLM and MiMo."""
    heads = text.needed("num_attention_heads")
    kv_heads = text.size("num_key_value_heads") or heads
    if heads % kv_heads:
        raise text.wrong("num_key_value_heads", f"a divisor of {heads} heads")
    head_dim = text.size("head_dim") or max(1, hidden // heads)
    if dialect.attention == "gated" and text.switch("attn_output_gate") is False:
        raise text.wrong("attn_output_gate", "true, as modules of this family have it")
    stated = text.switch("attention_bias")
    bias, gated = dialect.attention_bias if stated is None else stated, dialect.attention == "gated"
    normed = text.flag("use_qk_norm") if dialect.qk_norm is None else dialect.qk_norm
    return GroupedShape(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotated=int(head_dim * rotary_share(text, dialect)) // 2 * 2,
        bias=bias,
        output_bias=bias and gated,
        qk_norm=normed,
        gated=gated,
    )


def rotary_share(text: Fields, dialect: Dialect) -> float:
    """Share of a head that turns, at most 1."""
    key = "partial_rotary_factor"
    share = text.ratio(f"rope_parameters.{key}", key) or dialect.rotated
    if share > 1:
        raise SpecError(f"{text.file}: {text.dotted(key)} is {share}, expected at most 1; mend it or fetch it again")
    return share


def latent(text: Fields) -> LatentShape:
    """Sizes of latent attention; the scale of its scores grows with YaRN's factor [DeepSeekV3's own code]."""
    plain, rotated = text.needed("qk_nope_head_dim"), text.needed("qk_rope_head_dim")
    interleaved = text.switch("rope_interleave")
    return LatentShape(
        heads=text.needed("num_attention_heads"),
        q_rank=text.size("q_lora_rank"),
        kv_rank=text.needed("kv_lora_rank"),
        plain=plain,
        rotated=rotated,
        value=text.needed("v_head_dim"),
        bias=text.flag("attention_bias"),
        interleaved=interleaved is not False,
        scale=(plain + rotated) ** -0.5 * yarn_scale(text) ** 2,
    )


def yarn_scale(text: Fields) -> float:
    """DeepSeek's `mscale` of all dimensions, 1 without it."""
    rope = rope_part(text.part, text.file)
    if (rope.get("rope_type") or rope.get("type")) in PLAIN_ROPES:
        return 1.0
    factor, mscale = rope.ratio("factor"), rope.ratio("mscale_all_dim")
    return 1.0 if mscale is None or factor is None or factor <= 1 else 0.1 * mscale * log(factor) + 1


def experts(text: Fields, dialect: Dialect) -> ExpertsShape | None:
    """Numbers of the experts, None where the config has none."""
    count = text.size("n_routed_experts", "num_experts", lowest=0)
    if not count:
        return None
    for key, wanted in (("scoring_func", dialect.scores), ("topk_method", "noaux_tc")):
        if text.text(key) not in (None, wanted):
            raise text.wrong(key, f"'{wanted}', the only one that codraft runs in MTP modules")
    width = text.needed("moe_intermediate_size")
    sigmoid = dialect.scores == "sigmoid"
    normed, groups = text.switch("norm_topk_prob"), text.size("n_group") or 1
    shape = ExpertsShape(
        count=count,
        top_k=text.needed("num_experts_per_tok"),
        width=width,
        shared_width=width * (text.size("n_shared_experts", lowest=0) or 0)
        if sigmoid
        else text.size("shared_expert_intermediate_size", lowest=0) or 0,
        groups=groups if sigmoid else 1,
        top_groups=(text.size("topk_group") or groups) if sigmoid else 1,
        scale=(text.ratio("routed_scaling_factor") or 1.0) if sigmoid else 1.0,
        normed=normed is not False,
        scores=dialect.scores,
    )
    check_experts(text, shape)
    return shape


def check_experts(text: Fields, shape: ExpertsShape) -> None:
    """Groups divide the experts, and hold enough of them."""
    if shape.count % shape.groups:
        raise text.wrong("n_group", f"a divisor of {shape.count} experts")
    if shape.top_groups > shape.groups:
        raise text.wrong("topk_group", f"at most n_group, {shape.groups}")
    reachable = shape.count // shape.groups * shape.top_groups
    if shape.top_k > reachable:
        raise text.wrong("num_experts_per_tok", f"at most {reachable}, the experts of the chosen groups")
