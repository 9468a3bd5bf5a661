"""What tensor headers prove about a model, whatever prefix its layers have."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from codraft.formats.mtp import TOWER, has_mark, in_namespace, join_of
from codraft.formats.quantnames import SHARED, is_packed
from codraft.formats.safetensors import TensorInfo

LAYER = re.compile(r"^(?P<prefix>.*?)(?P<kind>layers|h|blocks|layer|block)\.(?P<number>[0-9]{1,6})\.(?P<rest>.+)$")
MTP_COPY = re.compile(r"(embed_tokens|embeddings|shared_head\.head|lm_head)\.weight$")
EXPERT = ".experts."
EXPERT_NUMBER = re.compile(r"[0-9]{1,6}")
EXPERT_STACK = re.compile(
    r"\.experts\.(gate_up_proj|down_proj|up_proj|gate_proj|w1|w2|w3|mlp\.\w+)(\.weight)?(_bias|_blocks)?$"
)
EMBEDDING = re.compile(
    r"(^|\.)(embed_tokens|embeddings|wte|word_embeddings|embed_in|tok_embeddings|tokens_embed|token_embeddings)\.weight$"
    r"|^transformer\.w\.weight$"
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


@dataclass(frozen=True, slots=True)
class Kin:
    """Tensors of one type that differ in the number of their expert alone; mostly a single one.

    `name` and `shape` are the first's, `elements` those of all, `experts` the highest number and one, 0 without number.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    elements: int
    experts: int


def gather(tensors: Mapping[str, TensorInfo]) -> list[Kin]:
    """Tensors with the experts of a layer as one: of the 90,000 of a large mixture a few thousand are left."""
    kin: list[Kin] = []
    numbered: dict[tuple[str, str, str], list[TensorInfo]] = {}
    for name, info in tensors.items():
        before, found, after = name.partition(EXPERT)
        number, _, rest = after.partition(".")
        if found and rest and EXPERT_NUMBER.fullmatch(number):
            numbered.setdefault((before, rest, info.dtype), []).append(info)
        else:
            kin.append(Kin(name, info.shape, info.dtype, info.num_elements, 0))
    for group in numbered.values():
        first = group[0]
        shapes = {info.shape for info in group}
        elements = first.num_elements * len(group) if len(shapes) == 1 else sum(info.num_elements for info in group)
        highest = max(int(info.name.partition(EXPERT)[2].partition(".")[0]) for info in group)
        kin.append(Kin(first.name, first.shape, first.dtype, elements, highest + 1))
    return kin


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
    kin = gather(tensors)
    own = [one for one in kin if not TOWER.search(one.name) and not in_namespace(one.name)]
    placed = [(one, match) for one in own if (match := LAYER.match(one.name))]
    prefix = main_prefix(placed)
    inner = [(one, match) for one, match in placed if match["prefix"] + match["kind"] == prefix]
    modules = {int(match["number"]) for one, match in inner if has_mark(one.name)}
    decoder = {int(match["number"]): one.name for one, match in inner}
    last = max(decoder.keys() - modules, default=None)
    outer = [one for one in own if not LAYER.match(one.name)]
    mixing = Mixing([(one, f".{match['rest']}") for one, match in inner], hidden)
    separate = any(in_namespace(one.name) and (LAYER.match(one.name) or join_of(one.name)) for one in kin)
    return Headers(
        num_layers=None if last is None else (last + 1, decoder[last]),
        hidden=embedding(outer, 1),
        vocab=embedding(outer, 0),
        head_dim=mixing.head_dim,
        key_rows=mixing.key_rows,
        fused_rows=mixing.fused_rows,
        output_columns=mixing.output_columns,
        num_experts=num_experts([one for one, _ in inner]),
        tied=tied(outer),
        mtp_layers=len(modules) or (1 if separate else 0),
    )


def main_prefix(placed: Iterable[tuple[Kin, re.Match[str]]]) -> str:
    """The prefix under which most layers lie."""
    seen = {(match["prefix"] + match["kind"], match["number"]) for _, match in placed}
    counts = Counter(prefix for prefix, _ in seen)
    return max(counts, key=lambda prefix: (counts[prefix], -len(prefix)), default="")


class Mixing:
    """Rows of the projections of the attention layers.

    Gemma 4 and MiMo have heads of two widths; then no single number holds and none is given.
    """

    def __init__(self, inner: list[tuple[Kin, str]], hidden: int) -> None:
        keys = [one for one, rest in inner if KEY.search(rest) and usable(one, hidden)]
        self.key_rows = agreed((one.name, one.shape[0]) for one in keys)
        outputs = [one for one, rest in inner if OUTPUT.search(rest) and len(one.shape) == 2]
        plain = [one for one in outputs if one.shape[0] == hidden and one.dtype not in SHARED]
        self.output_columns = agreed((one.name, one.shape[1]) for one in plain)
        # GPT-2 keeps its matrices the other way round.
        fused = [one for one, rest in inner if FUSED.search(rest) and len(one.shape) == 2 and hidden in one.shape]
        self.fused_rows = agreed((one.name, one.shape[0 if one.shape[1] == hidden else 1]) for one in fused)
        norms = [one for one, rest in inner if HEAD_NORM.search(rest) and len(one.shape) == 1]
        found = agreed((one.name, one.shape[0]) for one in norms)
        rows = self.key_rows[0] if self.key_rows else 0
        # A norm over all heads is as wide as the projection, one of a head divides it.
        fits = found is not None and found[0] and rows % found[0] == 0 and rows > found[0]
        self.head_dim = found if fits else None


def usable(one: Kin, hidden: int) -> bool:
    """Whether rows are outputs: not where 4-bit packing has flattened or transposed the matrix."""
    return len(one.shape) == 2 and one.shape[1] in (hidden, hidden // 2, hidden // 8)


def agreed(found: Iterator[tuple[str, int]]) -> tuple[int, str] | None:
    """(number, tensor) where all these tensors say the same."""
    numbers: dict[int, str] = {}
    for name, number in found:
        numbers.setdefault(number, name)
    return next(iter(numbers.items())) if len(numbers) == 1 else None


def embedding(outer: Iterable[Kin], axis: int) -> tuple[int, str] | None:
    """One axis of the embedding table: 0 the vocabulary, 1 the hidden size."""
    for one in outer:
        if EMBEDDING.search(one.name) and len(one.shape) == 2 and one.dtype not in SHARED:
            return one.shape[axis], one.name
    return None


def num_experts(inner: Iterable[Kin]) -> tuple[int, str] | None:
    """Routed experts of a layer: stacked in one tensor, or numbered."""
    inner = list(inner)
    stacked = [one for one in inner if EXPERT in one.name and len(one.shape) >= 3 and EXPERT_STACK.search(one.name)]
    if (found := agreed((one.name, one.shape[0]) for one in stacked)) is not None:
        return found
    most = max(inner, key=lambda one: one.experts, default=None)
    return (most.experts, most.name) if most is not None and most.experts else None


def tied(outer: Iterable[Kin]) -> tuple[bool, str] | None:
    """Whether the head is the embedding table, by whether a head is stored; None without a table."""
    names = [one.name for one in outer]
    table = next((name for name in names if EMBEDDING.search(name)), None)
    if table is None:
        return None
    head = next((name for name in names if HEAD.search(name)), None)
    return (True, table) if head is None else (False, head)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCount:
    """Elements of the language model's weights by part; `packed` where several weights share an element."""

    total: int
    embedding: int
    head: int
    head_bias: int
    experts: int
    mtp: int
    num_layers: int
    packed: bool


def count_headers(tensors: Mapping[str, TensorInfo]) -> HeaderCount:
    """Elements by part. Towers, scales and buffers are left out, and what an MTP module repeats of the model."""
    own = [one for one in gather(tensors) if not TOWER.search(one.name) and not AUXILIARY.search(one.name)]
    placed = {one.name: match for one in own if (match := LAYER.match(one.name)) and not in_namespace(one.name)}
    modules = {match["number"] for name, match in placed.items() if has_mark(name)}
    counts: Counter[str] = Counter()
    layers = set()
    for one in own:
        match = placed.get(one.name)
        if in_namespace(one.name) or (match and match["number"] in modules):
            counts["mtp"] += 0 if MTP_COPY.search(one.name) else one.elements
            continue
        counts["total"] += one.elements
        if match is not None:
            layers.add(match["prefix"] + match["number"])
            if one.experts or EXPERT_STACK.search(one.name):
                counts["experts"] += one.elements
        elif EMBEDDING.search(one.name) or OTHER_TABLES.search(one.name):
            counts["embedding"] += one.elements
        elif HEAD.search(one.name):
            counts["head"] += one.elements
        elif one.name.endswith("lm_head.bias"):
            counts["head_bias"] += one.elements
    return HeaderCount(
        total=counts["total"],
        embedding=counts["embedding"],
        head=counts["head"],
        head_bias=counts["head_bias"],
        experts=counts["experts"],
        mtp=counts["mtp"],
        num_layers=len(layers),
        packed=any(one.dtype in SHARED or is_packed(one.name) for one in own),
    )
