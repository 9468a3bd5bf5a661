"""Heads, groups and widths of attention, in target and drafter."""

from collections.abc import Iterator

from codraft.core.inspection import Evidence, Finding
from codraft.formats.heads.head import Geometry
from codraft.formats.heads.read import proven_head_dim
from codraft.models.inspect.cached import cached_numbers
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, asked, seen_at, tensor_evidence
from codraft.models.memory import token_elements

RATIO = Rule(
    code="heads.ratio",
    severity="error",
    title="Query heads are no multiple of KV heads",
    consequence="No grouped attention kernel can run it.",
    fix="Mend num_attention_heads or num_key_value_heads; the rows of q_proj and k_proj tell which is wrong.",
)
ODD_GROUP = Rule(
    code="heads.group",
    severity="note",
    title="A group size that attention kernels were not all built for",
    consequence="Kernels are compiled for some numbers of query rows for each KV head, G times 1 + D. With a G "
    "other than 1, 2, 4 or 8 a back-end may lack one of them: an error at some D, or a slow path.",
    fix="Try the D you want on the engine and back-end you will serve with; design drafters with a group of 1, 2, 4"
    " or 8.",
    seen="flashinfer-ai/flashinfer#3343, #558, #2684, #3563",
)
TP_HEADS = Rule(
    code="heads.tp",
    severity="error",
    title="Ranks of tensor parallelism do not divide the heads",
    consequence="The engine refuses to start.",
    fix="Choose a number of ranks that divides the query heads, and serve the drafter with fewer ranks where the "
    "engine can.",
)
TP_KV = Rule(
    code="heads.tp_kv",
    severity="warning",
    title="More ranks than KV heads",
    consequence="KV heads are copied to several ranks: the cache for each rank no longer shrinks, so fewer "
    "sequences fit.",
    fix="Count the cache with one KV head for each rank, or use fewer ranks.",
    seen="NVIDIA/TensorRT-LLM#17406",
)
TP_LATENT = Rule(
    code="mla.tp",
    severity="note",
    title="Every rank of tensor parallelism keeps the whole latent",
    consequence="Latent attention has one latent for all heads, so its cache does not shrink with the ranks.",
    fix="Use data parallelism for attention where cache decides how many sequences fit.",
)
KV_WIDER = Rule(
    code="heads.drafter_kv",
    severity="warning",
    varies="a note beside latent attention while it is less than a quarter of the target's cache",
    title="The drafter's layers cache more than the target's",
    consequence="Each drafter layer takes more bytes for a token than a target layer does, at equal acceptance "
    "length, and drafting reads them at every step.",
    fix="Train the drafter with the target's number of KV heads.",
    seen="NVIDIA/TensorRT-LLM#17406, #17514",
)
HEAD_DIM = Rule(
    code="head_dim.headers",
    severity="error",
    varies="a note for a model of its own, whose engines read head_dim from the tensors' sizes or know the family",
    title="The head width of config and tensors differ",
    consequence="Engines build q, k and v from the config (hidden / heads where head_dim is absent), so loading "
    "fails on their shapes.",
    fix="Write the head_dim that the tensors have into config.json.",
    seen="SafeAILab/EAGLE#315",
)
HEAD_DIM_ASSUMED = Rule(
    code="head_dim.assumed",
    severity="note",
    varies="a warning where hidden / heads is no whole number",
    title="The head width is assumed",
    consequence="Cache sizes and the group rule rest on hidden / heads.",
    fix="Write head_dim into the config.",
)
DOUBLED = Rule(
    code="eagle3.attention_width",
    severity="error",
    title="The first layer's attention does not read twice the hidden size",
    consequence="EAGLE-3 concatenates the token's embedding and the hidden state in front of q, k and v. Another width "
    "means another mechanism (EAGLE-1 and 2 read one hidden size), and loading fails or drafts are noise.",
    fix="Check which mechanism the checkpoint is of, and hidden_size in its config.",
    seen="SafeAILab/EAGLE#315, deepseek-ai/DeepSpec#44",
)
DISAGREES = Rule(
    code="config.disagrees",
    severity="error",
    title="Config and tensors disagree",
    consequence="The engine builds what the config says: loading fails, or layers stay random or unread.",
    fix="Mend the config key, or fetch the config that belongs to these weights.",
)
RULES = (RATIO, ODD_GROUP, TP_HEADS, TP_KV, TP_LATENT, KV_WIDER, HEAD_DIM, HEAD_DIM_ASSUMED, DOUBLED, DISAGREES)

# Share of the target's cache from which a drafter's counts.
MUCH = 0.25
# Groups that every kernel table has.
USUAL_GROUPS = (1, 2, 4, 8)


def check(pair: Pair) -> Iterator[Finding]:
    """Both models' heads, then the drafter's widths."""
    for model in pair.models():
        heads, kv_heads = head_counts(model)
        if heads and kv_heads:
            yield from check_heads(pair, model, heads, kv_heads)
        yield from check_head_dim(model)
        if isinstance(model, Model):
            yield from check_config(model)
    if isinstance(pair.drafter, HeadModel):
        yield from check_doubled(pair.drafter)
        yield from check_cache(pair.target, pair.drafter)


def head_counts(model: Model | HeadModel) -> tuple[int | None, int | None]:
    """(query heads, KV heads) of one layer."""
    if isinstance(model, Model):
        return model.arch.num_heads, model.arch.num_kv_heads
    g = model.head.geometry
    return (g.num_heads, g.num_kv_heads) if g.num_layers else (None, None)


def latent(model: Model | HeadModel) -> bool:
    """Whether all heads read one latent: kernels of its own, and no KV heads to divide."""
    return isinstance(model, Model) and model.arch.latent


def check_heads(pair: Pair, model: Model | HeadModel, heads: int, kv_heads: int) -> Iterator[Finding]:
    """Ratio, group, ranks."""
    evidence = (model.key("num_attention_heads"), model.key("num_key_value_heads"))
    if heads % kv_heads:
        yield RATIO.found(f"the {model.side} has {heads} query heads and {kv_heads} KV heads", *evidence)
        return
    if (G := heads // kv_heads) not in USUAL_GROUPS and not latent(model):
        D = pair.question.depth
        rows = f", {G * (1 + D)} rows at D = {D}" if D else ""
        yield ODD_GROUP.found(f"the {model.side} has {G} query heads for each KV head{rows}", *evidence)
    tp = pair.question.tp
    if tp is None:
        return
    if heads % tp:
        yield TP_HEADS.found(f"{tp} ranks, {heads} query heads of the {model.side}", asked("tp", tp), *evidence)
    elif max(tp, kv_heads) % min(tp, kv_heads):
        yield TP_HEADS.found(
            f"{tp} ranks, {kv_heads} KV heads of the {model.side}: neither divides the other",
            asked("tp", tp),
            *evidence,
            fix="Choose a number of ranks that divides the KV heads or is a multiple of them.",
        )
    elif tp > kv_heads and latent(model):
        yield TP_LATENT.found(f"{tp} ranks keep it {tp} times", asked("tp", tp), model.key("kv_lora_rank"))
    elif tp > kv_heads:
        yield TP_KV.found(
            f"{tp} ranks, {kv_heads} KV heads of the {model.side}: each is kept {tp // kv_heads} times",
            asked("tp", tp),
            *evidence,
        )


def check_head_dim(model: Model | HeadModel) -> Iterator[Finding]:
    """Whether the head width is known, and known the same everywhere."""
    if isinstance(model, Model):
        basis, arch = model.arch.head_dim_basis, model.arch
        hidden, heads, head_dim = arch.hidden, arch.num_heads, arch.head_dim
    else:
        g = model.head.geometry
        basis, hidden, heads, head_dim = g.head_dim_basis, g.hidden, g.num_heads, g.head_dim
        yield from check_given_width(model, g)
    if not heads or head_dim is None:
        return
    evidence: tuple[Evidence, ...] = (model.key("head_dim"), model.key("hidden_size"), model.key("num_attention_heads"))
    # Classes of Qwen3 layers take 128 where nothing is said.
    usual = isinstance(model, HeadModel) and head_dim == 128 and qwen3(model)
    if basis == "headers" and head_dim * heads != hidden and not usual:
        yield HEAD_DIM.found(
            f"the {model.side}'s tensors have heads of {head_dim}, head_dim is absent, and {hidden} / {heads} is "
            f"{hidden / heads:g}",
            *evidence,
            severity="error" if isinstance(model, HeadModel) else "note",
            fix=f'Write "head_dim": {head_dim} into config.json.',
        )
    if basis == "assumed" and hidden % heads:
        yield HEAD_DIM_ASSUMED.found(
            f"the {model.side} has {heads} heads on a hidden size of {hidden}, no head_dim, and no tensor that tells",
            *evidence,
            severity="warning",
        )


def qwen3(drafter: HeadModel) -> bool:
    """Whether the layers are of a Qwen3 class."""
    return str(drafter.head.text.get("model_type", "")).startswith("qwen3")


def check_given_width(drafter: HeadModel, g: Geometry) -> Iterator[Finding]:
    """The head_dim that a drafter's config gives, against what its queries and keys agree on."""
    found = proven_head_dim(drafter.head, drafter.tensors)
    if g.head_dim_basis == "given" and found not in (None, g.head_dim):
        key = "head_dim" if drafter.key("global_head_dim").value is None else "global_head_dim"
        info = drafter.tensors["layers.0.self_attn.k_proj.weight"]
        yield HEAD_DIM.found(
            f"{key} is {g.head_dim}, and {info.name} has heads of {found}",
            drafter.key(key),
            tensor_evidence("drafter", info),
            fix=f'Write "{key}": {found}, or mend the numbers of heads.',
        )


def check_config(model: Model) -> Iterator[Finding]:
    """What the model reader found to disagree."""
    lost = model.checkpoint.lacks_files
    for item in model.arch.disagreements:
        # Missing files have a finding of their own, and explain what seems to lack.
        if lost and item.key.rpartition(".")[2] in ("num_hidden_layers", "tie_word_embeddings"):
            continue
        yield DISAGREES.found(
            f"{item.key} is {item.config}, and {item.tensor} shows {item.headers}",
            model.key(item.key),
            seen_at(model.side, "*.safetensors", item.tensor, item.headers),
        )


def check_doubled(drafter: HeadModel) -> Iterator[Finding]:
    """EAGLE-3's attention reads [embedding ; hidden]."""
    if drafter.head.mechanism != "eagle3":
        return
    info = drafter.tensors.get("layers.0.self_attn.q_proj.weight")
    hidden = drafter.head.geometry.hidden
    if info is not None and len(info.shape) == 2 and info.shape[1] != 2 * hidden:
        one = " (one hidden size, as in EAGLE-1 and 2)" if info.shape[1] == hidden else ""
        yield DOUBLED.found(
            f"{info.name} reads {info.shape[1]}{one}, and twice the hidden size is {2 * hidden}",
            tensor_evidence("drafter", info),
            drafter.key("hidden_size"),
        )


def check_cache(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """Numbers that one drafter layer caches for a token, against one target layer."""
    g = drafter.head.geometry
    cached = [sum(token_elements(layer)) for layer in target.arch.layers]
    if not g.num_layers or not any(cached):
        return
    ours, theirs = cached_numbers(drafter.head) / g.num_layers, max(cached)
    if ours > theirs:
        share = ours * g.num_layers / sum(cached)
        yield KV_WIDER.found(
            f"a drafter layer caches {ours:,.0f} numbers for a token, a target layer {theirs:,.0f}: {share:.0%} of the "
            "target's cache in all",
            drafter.key("num_key_value_heads"),
            target.key("kv_lora_rank" if latent(target) else "num_key_value_heads"),
            # Beside a latent every ordinary head is wide; then it is the whole that counts.
            severity="note" if latent(target) and share < MUCH else None,
        )
