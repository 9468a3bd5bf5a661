"""Layers with their sizes, from the keys that each kind of layer has in the configs of its families."""

from dataclasses import replace

from codraft.models.architecture import Attention, Compressed, Ffn, Layer, Linear, Mamba, Mixer, Mla, Moe
from codraft.models.fields import FamilyFields
from codraft.models.kinds import EXPERTS

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "decoder_attention_heads")
KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num",
    "num_attention_groups",
)  # fmt: skip
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "head_size")
WIDTH = (
    "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "block_ff_dim", "inner_size",
    "ff_intermediate_size", "decoder_ffn_dim", "dff",
)  # fmt: skip
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", "moe_top_k")
EXPERT_WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "ffn_moe_hidden_size")
SHARED_WIDTH = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
    "share_expert_dim",
)  # fmt: skip
NUM_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
DENSE_BESIDE_EXPERTS = ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size")


def build_layers(
    fields: FamilyFields,
    kinds: list[tuple[Mixer, Ffn, int | None]],
    hidden: int,
    heads: Attention | None,
    num_experts: int | None = None,
) -> tuple[Layer, ...]:
    """The layers of these kinds; `heads` are the model's usual ones, `num_experts` what headers prove."""
    mixers = {mixer for mixer, _, _ in kinds}
    parts = Parts(fields, mixers, hidden, num_experts)
    widths = dense_widths(fields, kinds, hidden)
    rows = []
    for i, (mixer, ffn, window) in enumerate(kinds):
        attends = mixer in ("full", "sliding", "chunked")
        rows.append(
            Layer(
                mixer=mixer,
                ffn="none" if ffn == "dense" and widths[i] is None else ffn,
                window=window,
                attention=layer_heads(fields, heads, kinds, i) if attends else None,
                mla=parts.mla if mixer == "mla" else None,
                compressed=read_compressed(fields, i) if mixer == "sliding" and fields.key("o_lora_rank") else None,
                linear=parts.linear if mixer == "linear" else None,
                mamba=parts.mamba if mixer == "mamba" or (attends and parts.parallel) else None,
                conv_kernel=parts.conv if mixer == "conv" else None,
                width=widths[i],
                moe=parts.moe if ffn == "moe" else None,
            )
        )
    return tuple(rows)


class Parts:
    """What all layers of a kind have in common, read once and only where the model has such layers."""

    def __init__(self, fields: FamilyFields, mixers: set[Mixer], hidden: int, num_experts: int | None) -> None:
        self.parallel = bool(fields.trait("parallel_mamba"))
        self.mla = read_mla(fields) if "mla" in mixers else None
        self.linear = read_linear(fields, hidden) if "linear" in mixers else None
        self.mamba = read_mamba(fields, hidden) if "mamba" in mixers or self.parallel else None
        self.conv = fields.size("conv_L_cache", "conv_kernel_size") or 3
        self.moe = read_moe(fields, num_experts) if fields.common(*EXPERTS) else None


def layer_heads(
    fields: FamilyFields, heads: Attention | None, kinds: list[tuple[Mixer, Ffn, int | None]], i: int
) -> Attention | None:
    """The heads of layer i, where the config gives some layers others than the usual ones."""
    if heads is None:
        raise fields.missing(HEADS[0])
    windowed = kinds[i][0] == "sliding"
    if (per_layer := fields.sizes("num_attention_heads_per_layer")) is not None:
        fields.fit("num_attention_heads_per_layer", len(per_layer), len(kinds))
        heads = replace(heads, num_heads=max(per_layer[i], 1))
    if (per_layer := fields.sizes("num_key_value_heads_per_layer")) is not None:  # DeciLM, OpenELM
        fields.fit("num_key_value_heads_per_layer", len(per_layer), len(kinds))
        heads = replace(heads, num_kv_heads=max(per_layer[i], 1))
    if own := (fields.inner("per_layer_config") or FamilyFields({})).inner(str(i), f"{i:02d}"):
        dim = own.size("head_dim") or heads.head_dim
        heads = replace(
            heads,
            num_heads=own.size("num_attention_heads") or heads.num_heads,
            num_kv_heads=own.size("num_key_value_heads") or heads.num_kv_heads,
            head_dim=dim,
            value_dim=dim,
        )
    elif windowed and fields.key("swa_num_key_value_heads", "swa_num_attention_heads", "swa_head_dim"):
        dim = fields.size("swa_head_dim") or heads.head_dim
        heads = replace(
            heads,
            num_heads=fields.size("swa_num_attention_heads") or heads.num_heads,
            num_kv_heads=fields.size("swa_num_key_value_heads") or heads.num_kv_heads,
            head_dim=dim,
            value_dim=fields.size("swa_v_head_dim") or (heads.value_dim if dim == heads.head_dim else dim),
        )
    elif windowed and (factor := fields.trait("windowed_kv_factor")):
        heads = replace(heads, num_kv_heads=heads.num_kv_heads * factor)
    elif not windowed and (dim_of_full := fields.size("global_head_dim")):
        kv_heads = fields.size("num_global_key_value_heads") if fields.flag("attention_k_eq_v") else None
        heads = replace(heads, head_dim=dim_of_full, value_dim=dim_of_full, num_kv_heads=kv_heads or heads.num_kv_heads)
    shared = fields.size("num_kv_shared_layers", lowest=0) or 0
    return replace(
        heads,
        cached=i < len(kinds) - shared,
        shared_projection=not windowed and fields.flag("attention_k_eq_v"),
    )


def read_mla(fields: FamilyFields) -> Mla:
    """Ranks and widths of latent attention."""
    nope, rope = fields.needed("qk_nope_head_dim"), fields.size("qk_rope_head_dim", lowest=0)
    return Mla(
        num_heads=fields.needed(*HEADS),
        q_rank=fields.size("q_lora_rank"),
        kv_rank=fields.needed("kv_lora_rank"),
        nope_dim=nope,
        rope_dim=rope or 0,
        value_dim=fields.size("v_head_dim") or nope,
        index_heads=fields.size("index_n_heads", lowest=0) or 0,
        index_dim=fields.size("index_head_dim", lowest=0) or 0,
    )


def read_compressed(fields: FamilyFields, i: int) -> Compressed:
    """DeepSeek-V4's attention in layer i. Layers that pick their entries, one for every few tokens, have an indexer."""
    rate = compression(fields, i)
    indexed = rate is not None and rate == compression(fields, 3, usual=True)
    return Compressed(
        q_rank=fields.needed("q_lora_rank"),
        groups=fields.size("o_groups") or 1,
        out_rank=fields.needed("o_lora_rank"),
        rate=rate,
        index_heads=(fields.size("index_n_heads") or 0) if indexed else 0,
        index_dim=(fields.size("index_head_dim") or 0) if indexed else 0,
    )


def compression(fields: FamilyFields, i: int, *, usual: bool = False) -> int | None:
    """Tokens that one entry of layer i stands for beyond the window, None for the window alone: by the kind of the
    layer, by a list of rates, or else (`usual`) two dense layers and then every other one sparse."""
    sparse, dense = "compressed_sparse_attention", "heavily_compressed_attention"
    rates = fields.inner("compress_rates") or FamilyFields({})
    by_kind = {sparse: rates.size(sparse) or 4, dense: rates.size(dense) or 128}
    if not usual and (words := fields.words("layer_types")):
        return by_kind.get(words[i])
    if not usual and (listed := fields.sizes("compress_ratios")):
        return listed[i] or None if i < len(listed) else None
    return by_kind[sparse if i >= 2 and i % 2 else dense]


def read_linear(fields: FamilyFields, hidden: int) -> Linear:
    """Sizes of linear attention: gated delta net, KDA, RG-LRU, or lightning attention, which has the usual heads."""
    kernel = fields.size("linear_conv_kernel_dim", "conv1d_width") or 4
    if fields.key("linear_num_value_heads") or "linear_num_value_heads" in fields.family.defaults:
        values = fields.needed("linear_num_value_heads")
        key_dim = fields.needed("linear_key_head_dim")
        return Linear(
            rule="delta",
            num_key_heads=fields.size("linear_num_key_heads") or values,
            num_value_heads=values,
            key_dim=key_dim,
            value_dim=fields.size("linear_value_head_dim") or key_dim,
            conv_kernel=kernel,
        )
    if width := fields.size("lru_width"):
        heads = fields.needed(*HEADS)
        return Linear(
            rule="lru",
            num_key_heads=heads,
            num_value_heads=heads,
            key_dim=1,
            value_dim=width // heads,
            conv_kernel=kernel,
        )
    inner = fields.inner("linear_attn_config")
    at = inner or fields
    names = (("num_heads",), ("head_dim",)) if inner else (("linear_num_heads",), ("linear_head_dim",))
    if inner or fields.key("linear_num_heads"):
        heads, dim = at.needed(*names[0]), at.needed(*names[1])
        kernel = (inner.size("short_conv_kernel_size") if inner else None) or kernel
        return Linear(
            rule="kda", num_key_heads=heads, num_value_heads=heads, key_dim=dim, value_dim=dim, conv_kernel=kernel
        )
    heads = fields.needed(*HEADS)
    dim = fields.size(*HEAD_DIM) or max(hidden // heads, 1)
    return Linear(
        rule="lightning", num_key_heads=heads, num_value_heads=heads, key_dim=dim, value_dim=dim, conv_kernel=1
    )


def read_mamba(fields: FamilyFields, hidden: int) -> Mamba:
    """Sizes of Mamba 1 (which has a rank of its time steps and no heads) or 2."""
    state = fields.needed("ssm_state_size", "mamba_d_state", "state_size")
    expand = fields.ratio("mamba_expand", "expand") or 2
    kernel = fields.size("conv_kernel", "mamba_d_conv", "d_conv") or 4
    rank = fields.size("mamba_dt_rank", "time_step_rank") if fields.part.get("mamba_dt_rank") != "auto" else None
    heads = fields.size("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    alone = bool(fields.trait("pure"))
    if heads is None and fields.family.name == "mamba2":
        heads = fields.needed("num_heads")
    if heads is None:
        return Mamba(
            version=1,
            inner=fields.size("mamba_inner_size") or int(expand * hidden),
            num_heads=1,
            state=state,
            groups=1,
            conv_kernel=kernel,
            dt_rank=rank or -(-hidden // 16),
        )
    dims = ("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    automatic = any(fields.part.get(name) == "auto" for name in dims)
    dim = None if automatic else fields.size(*dims, *(("head_dim",) if alone else ()))
    return Mamba(
        version=2,
        inner=fields.size("mamba_d_ssm") or heads * (dim or max(int(expand * hidden) // heads, 1)),
        num_heads=heads,
        state=state,
        groups=fields.size("n_groups", "mamba_n_groups", "mamba_ngroups") or 1,
        conv_kernel=kernel,
        dt_rank=0,
    )


def read_moe(fields: FamilyFields, num_experts: int | None) -> Moe:
    """The experts of a layer; `num_experts` is what headers prove."""
    stated = fields.common(*EXPERTS) or 1
    listed = isinstance(fields.part.get(EXPERT_WIDTH[0]), list)
    listed_widths = fields.sizes(EXPERT_WIDTH[0]) if listed else None
    width = (listed_widths or [0])[0] if listed else fields.size(*EXPERT_WIDTH)
    if not width:
        width = fields.needed(*WIDTH)
    count = fields.common(*NUM_SHARED)
    if count is None:
        count = fields.trait("shared_experts")
    shared = fields.size(*SHARED_WIDTH, lowest=0)
    if shared is None:
        shared = (count or 0) * width
    elif count is not None:
        shared *= count
    experts = num_experts or stated
    top_k = fields.common(*TOP_K, lowest=1)
    if top_k is None:
        fields.assume(f"{TOP_K[0]} is not in the config; 1 is taken")
    return Moe(
        num_experts=experts,
        top_k=min(top_k or 1, experts),
        width=width,
        shared_width=shared,
        latent=fields.size("moe_latent_size"),
    )


def dense_widths(fields: FamilyFields, kinds: list[tuple[Mixer, Ffn, int | None]], hidden: int) -> list[int | None]:
    """Width of each layer's dense FFN, None where it has none."""
    wanted = [ffn == "dense" or (ffn == "moe" and fields.flag("enable_moe_block")) for _, ffn, _ in kinds]
    if not any(wanted):
        return [None] * len(kinds)
    name = fields.key(*WIDTH)
    if name is not None and isinstance(fields.part[name], list):
        widths = fields.sizes(name) or []
        fields.fit(name, len(widths), len(kinds))
    else:
        usual = dense_width(fields, hidden)
        if usual is None:
            return [None] * len(kinds)
        widths = [usual] * len(kinds)
    if fields.flag("use_double_wide_mlp"):
        first = len(kinds) - (fields.size("num_kv_shared_layers", lowest=0) or 0)
        widths = [2 * width if i >= first else width for i, width in enumerate(widths)]
    return [width if has and width else None for width, has in zip(widths, wanted, strict=False)]


def dense_width(fields: FamilyFields, hidden: int) -> int | None:
    """The usual width of a dense FFN; None for Mamba, which has no FFN."""
    if fields.trait("pure"):
        return None
    beside = () if fields.common(*EXPERTS) is None else DENSE_BESIDE_EXPERTS
    width = (fields.size(*beside) if beside else None) or fields.size(*WIDTH)
    if fields.family.name == "granitemoehybrid":  # without experts the shared FFN is all there is
        width = fields.size("shared_intermediate_size", lowest=0) or width
    if width is None and (factor := fields.ratio("expansion_ratio") or fields.trait("ffn_factor")):
        width = int(factor * hidden)
    if width is None:
        raise fields.missing(WIDTH[0])
    if fields.flag("block_auto_adjust_ff_dim"):  # LFM2, as its modeling file
        multiplier = fields.ratio("block_ffn_dim_multiplier") or 1.0
        multiple = fields.size("block_multiple_of") or 1
        width = -(-int(multiplier * int(2 * width / 3)) // multiple) * multiple
    return max(width // (fields.trait("ffn_divisor") or 1), 1)
