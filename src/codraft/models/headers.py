"""What tensor headers prove about a model, whatever prefix its layers have."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from codraft.formats.safetensors import TensorInfo

LAYER = re.compile(r"^(?P<prefix>.*?)(?P<kind>layers|h|blocks|layer|block)\.(?P<number>\d+)\.(?P<rest>.+)$")
# Towers, projectors and drafters that lie in the same files.
FOREIGN = re.compile(
    r"(^|\.)(visual|vision\w*|vit|audio\w*|image\w*|speech\w*|mm_\w+|multi_modal\w*|talker|code2wav|token2wav"
    r"|sam_\w+|aligner|projector|connector|resampler|mlp1|embed_vision|embed_audio)(\.|$)"
)
MTP_PREFIX = re.compile(r"(^|\.)mtp\w*\.")
MTP_MARK = re.compile(r"\.(eh_proj|enorm|hnorm|shared_head)\.")
MTP_COPY = re.compile(r"(embed_tokens|embeddings|shared_head\.head|lm_head)\.weight$")
EXPERT = re.compile(r"\.(?:experts|local_experts)\.(?P<number>\d+)\.")
EXPERT_STACK = re.compile(
    r"\.experts\.(gate_up_proj|down_proj|up_proj|gate_proj|w1|w2|w3|mlp\.\w+)(\.weight)?(_bias|_blocks)?$"
)
SHARED = re.compile(r"shared_?(expert|mlp)")
EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|embeddings|wte|word_embeddings|embed_in|tok_embeddings|tokens_embed)\.weight$"
)
# Tables beside it: positions, and embeddings of single layers.
OTHER_TABLES = re.compile(r"(embed_tokens_per_layer|wpe|embed_positions|positions_embed)\.weight$")
HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output|head)\.(weight|weight_packed|qweight)$")
MIXING = r"\.(self_attn|attention|attn|mixer|self_attention|temporal_block)\."
KEY = re.compile(MIXING + r"(attention\.)?k_proj\.(weight|weight_packed)$")
FUSED = re.compile(MIXING + r"(query_key_value|qkv_proj|c_attn|Wqkv)\.(weight|weight_packed)$")
OUTPUT = re.compile(MIXING + r"(attention\.)?(o_proj|out_proj|dense)\.weight$")
HEAD_NORM = re.compile(r"\.(q_norm|k_norm|q_layernorm|k_layernorm|query_layernorm|key_layernorm)\.weight$")
# Beside the weights: scales and zero points of quantised ones, and buffers.
AUXILIARY = re.compile(
    r"(\.(weight|input|output|k|v|q|prob|k_cache|v_cache)_scale|_proj_scale|\.scales|_proj_scales|_blocks_scales"
    r"|\.qzeros|\.g_idx|_zero_point|\.weight_shape|_global_scale|\.absmax|quant_map|_scale_inv|_scale_2|_scale_inv_2"
    r"|inv_freq|e_score_correction_bias|feed_forward\.expert_bias|masked_bias|\.attn\.bias|rotary_emb\.\w+|\.layer_scalar|act_fn\.(beta|eps)"
    r"|\.(slope_rate|query_decay|key_decay|diagonal_decay|tid2eid))$|quant_state"
)
PACKED = re.compile(r"(qweight|weight_packed|_blocks|\.packed)$")
PACKED_TYPES = ("U8", "I32", "U32", "F4", "U16", "I16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Numbers with the tensor that proves each; None where no header does.

    `key_rows` are the outputs of a k_proj, `fused_rows` those of one matrix for queries, keys and values,
    `output_columns` the inputs of an o_proj.
    """

    num_layers: tuple[int, str] | None = None
    hidden: tuple[int, str] | None = None
    vocab: tuple[int, str] | None = None
    head_dim: tuple[int, str] | None = None
    key_rows: tuple[int, str] | None = None
    fused_rows: tuple[int, str] | None = None
    output_columns: tuple[int, str] | None = None
    num_experts: tuple[int, str] | None = None
    tied: tuple[bool, str] | None = None
    mtp_layers: int = 0
    names: list[str] = field(default_factory=list)

    def head_width(self, kv_heads: int, given: int | None, num_heads: int) -> tuple[int | None, str]:
        """The width of a head, and the tensor that proves it; `given` where nothing proves another.

        A norm of one head says it outright. Else k_proj over the KV heads gives a width that the config leaves out,
        and o_proj over the query heads one that k_proj fits.
        """
        if self.head_dim is not None:
            return self.head_dim
        rows, tensor = self.key_rows or (0, "")
        if given is None:
            heads = kv_heads
            if not rows:
                rows, tensor = self.fused_rows or (0, "")
                heads = num_heads + 2 * kv_heads
            return (rows // heads, tensor) if rows and rows % heads == 0 else (None, tensor)
        columns, output = self.output_columns or (0, "")
        width = columns // num_heads
        if width and columns % num_heads == 0 and rows and rows % width == 0:
            return width, output
        return given, tensor

    def kv_heads(self, head_dim: int) -> tuple[int, str] | None:
        """KV heads that k_proj has room for, at that width of a head."""
        if self.key_rows is None or self.key_rows[0] % head_dim or not self.key_rows[0]:
            return None
        return self.key_rows[0] // head_dim, self.key_rows[1]


def read_headers(tensors: Mapping[str, TensorInfo], hidden: int) -> Headers:
    """What these headers prove of the language model among them; `hidden` is the config's."""
    own = {name: info for name, info in tensors.items() if not FOREIGN.search(name) and not MTP_PREFIX.search(name)}
    prefix = main_prefix(own)
    numbers: dict[int, str] = {}
    modules: set[int] = set()
    inner: dict[str, tuple[str, TensorInfo]] = {}
    for name, info in own.items():
        match = LAYER.match(name)
        if match is None or match["prefix"] + match["kind"] != prefix:
            continue
        number = int(match["number"])
        numbers.setdefault(number, name)
        if MTP_MARK.search(name):
            modules.add(number)
        inner[name] = (match["rest"], info)
    decoder = {number: name for number, name in numbers.items() if number not in modules}
    last = max(decoder, default=None)
    mixing = Mixing(inner, hidden)
    separate = {m["number"] for name in tensors if MTP_PREFIX.search(name) and (m := LAYER.match(name))}
    return Headers(
        num_layers=None if last is None else (last + 1, decoder[last]),
        hidden=embedding(own, 1),
        vocab=embedding(own, 0),
        head_dim=mixing.head_dim,
        key_rows=mixing.key_rows,
        fused_rows=mixing.fused_rows,
        output_columns=mixing.output_columns,
        num_experts=num_experts(inner),
        tied=tied(own),
        mtp_layers=len(modules) or (1 if separate else 0),
        names=sorted(own),
    )


def main_prefix(tensors: Mapping[str, TensorInfo]) -> str:
    """The prefix under which most layers lie."""
    seen = {(m["prefix"] + m["kind"], m["number"]) for name in tensors if (m := LAYER.match(name))}
    counts = Counter(prefix for prefix, _ in seen)
    return max(counts, key=lambda prefix: (counts[prefix], -len(prefix)), default="")


class Mixing:
    """Rows of the projections of one layer that attends to everything where there are several kinds of them.

    Gemma 4 and MiMo have heads of two widths; then no single number holds and none is given.
    """

    def __init__(self, inner: Mapping[str, tuple[str, TensorInfo]], hidden: int) -> None:
        self.key_rows = agreed((name, info.shape[0]) for name, info in matching(inner, KEY) if usable(info, hidden))
        outputs = ((name, info.shape) for name, info in matching(inner, OUTPUT) if len(info.shape) == 2)
        plain = {name for name, info in matching(inner, OUTPUT) if info.dtype not in PACKED_TYPES}
        self.output_columns = agreed((name, b) for name, (a, b) in outputs if a == hidden and name in plain)
        # GPT-2 keeps its matrices the other way round.
        fused = ((name, info.shape) for name, info in matching(inner, FUSED) if len(info.shape) == 2)
        self.fused_rows = agreed((name, a if b == hidden else b) for name, (a, b) in fused if hidden in (a, b))
        widths = [
            (name, info.shape[0])
            for name, info in matching(inner, HEAD_NORM)
            if len(info.shape) == 1 and self.key_rows is not None and info.shape[0] != self.key_rows[0]
        ]
        found = agreed(iter(widths))
        rows = self.key_rows[0] if self.key_rows else 0
        # A norm over all heads is as wide as the projection, one of a head divides it.
        fits = found is not None and found[0] and rows % found[0] == 0 and rows > found[0]
        self.head_dim = found if fits else None


def matching(inner: Mapping[str, tuple[str, TensorInfo]], pattern: re.Pattern[str]) -> Iterator[tuple[str, TensorInfo]]:
    """Tensors of layers whose name within the layer matches."""
    return ((name, info) for name, (rest, info) in inner.items() if pattern.search(f".{rest}"))


def usable(info: TensorInfo, hidden: int) -> bool:
    """Whether rows are outputs: not where 4-bit packing has flattened or transposed the matrix."""
    if len(info.shape) != 2:
        return False
    return info.shape[1] in (hidden, hidden // 2, hidden // 8)


def agreed(found: Iterator[tuple[str, int]]) -> tuple[int, str] | None:
    """(number, tensor) where all these tensors say the same."""
    numbers: dict[int, str] = {}
    for name, number in found:
        numbers.setdefault(number, name)
    return next(iter(numbers.items())) if len(numbers) == 1 else None


def embedding(tensors: Mapping[str, TensorInfo], axis: int) -> tuple[int, str] | None:
    """One axis of the embedding table: 0 the vocabulary, 1 the hidden size."""
    for name, info in tensors.items():
        if EMBEDDING.search(name) and not LAYER.match(name) and len(info.shape) == 2 and info.dtype not in PACKED_TYPES:
            return info.shape[axis], name
    return None


def num_experts(inner: Mapping[str, tuple[str, TensorInfo]]) -> tuple[int, str] | None:
    """Routed experts of a layer: stacked in one tensor, or numbered."""
    stacked = agreed((name, info.shape[0]) for name, info in matching(inner, EXPERT_STACK) if len(info.shape) >= 3)
    if stacked is not None:
        return stacked
    highest: tuple[int, str] | None = None
    for name, (rest, _) in inner.items():
        match = EXPERT.search(f".{rest}")
        if match and not SHARED.search(rest) and (highest is None or int(match["number"]) >= highest[0]):
            highest = int(match["number"]) + 1, name
    return highest


def tied(tensors: Mapping[str, TensorInfo]) -> tuple[bool, str] | None:
    """Whether the head is the embedding table, by whether a head is stored; None without a table."""
    table = next((name for name in tensors if EMBEDDING.search(name) and not LAYER.match(name)), None)
    if table is None:
        return None
    head = next((name for name in tensors if HEAD.search(name) and not LAYER.match(name)), None)
    return (True, table) if head is None else (False, head)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCount:
    """Elements of the language model's weights by part; `packed` where several weights share an element."""

    total: int
    embedding: int
    head: int
    experts: int
    mtp: int
    num_layers: int
    packed: bool


def count_headers(tensors: Mapping[str, TensorInfo]) -> HeaderCount:
    """Elements by part. Towers, scales and buffers are left out, and what an MTP module repeats of the model."""
    own = {name: info for name, info in tensors.items() if not FOREIGN.search(name) and not AUXILIARY.search(name)}
    modules = {m["number"] for name in own if MTP_MARK.search(name) and (m := LAYER.match(name))}
    counts: Counter[str] = Counter()
    layers = set()
    for name, info in own.items():
        match = LAYER.match(name)
        if MTP_PREFIX.search(name) or (match and match["number"] in modules):
            counts["mtp"] += 0 if MTP_COPY.search(name) else info.num_elements
            continue
        counts["total"] += info.num_elements
        if match is not None:
            layers.add(match["prefix"] + match["number"])
            expert = EXPERT.search(f".{match['rest']}") or EXPERT_STACK.search(f".{match['rest']}")
            if expert and not SHARED.search(match["rest"]):
                counts["experts"] += info.num_elements
        elif EMBEDDING.search(name) or OTHER_TABLES.search(name):
            counts["embedding"] += info.num_elements
        elif HEAD.search(name) or name.endswith("lm_head.bias"):
            counts["head"] += info.num_elements
    return HeaderCount(
        total=counts["total"],
        embedding=counts["embedding"],
        head=counts["head"],
        experts=counts["experts"],
        mtp=counts["mtp"],
        num_layers=len(layers),
        packed=any(info.dtype in PACKED_TYPES or PACKED.search(name) for name, info in own.items()),
    )
