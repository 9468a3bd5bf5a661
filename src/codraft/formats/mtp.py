"""Tensors of multi-token-prediction modules inside a target's checkpoint, in each family's names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Qwen3-Next and later, Nemotron-H, MiMo, ERNIE: a namespace of its own. DeepSeek, GLM: layers after the last.
NAMESPACE = re.compile(r"(?:^|\.)(?:mtp(?:_\w+)?|nextn)\.")
LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,6})\.")
# Towers for pictures and sound, which count their layers on their own, and what joins them to the language model.
TOWER = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|vit|audio\w*|image\w*|speech\w*|mm_\w+|multi_modal\w*|talker|\w+2wav|sam_\w+"
    r"|\w+encoder|aligner|projector|connector|resampler|mlp1|embed_vision|embed_audio|[qQ]former|depth_decoder)(?:\.|$)"
)
# A layer of a module, and the part of it.
UNIT = re.compile(r"^(.*?(?:layers|mtp_block|blocks)\.[0-9]{1,6})\.(.+)$")


@dataclass(frozen=True, slots=True)
class Join:
    """What a family joins hidden state and embedding with: norms of both, the projection's own name is the key of
    `JOINS`. `final` are the names that the norm at the module's end has; none where it is the model's."""

    norms: tuple[str, str]
    final: tuple[str, ...]


# DeepSeek, GLM, Nemotron-H; Qwen3-Next and 3.5, EXAONE; MiMo and the speculators library; ERNIE. Source: vLLM 0.32's
# loaders.
JOINS = {
    "eh_proj": Join(("enorm", "hnorm"), ("shared_head.norm", "final_layernorm", "norm")),
    "fc": Join(("pre_fc_norm_embedding", "pre_fc_norm_hidden"), ("norm",)),
    "input_proj": Join(("token_layernorm", "hidden_layernorm"), ("final_layernorm",)),
    "mtp_linear_proj": Join(("mtp_emb_norm", "mtp_hidden_norm"), ()),
}
# Parts that are none of the module's decoder layer, though some families number them with it.
APART = {part.partition(".")[0] for key, join in JOINS.items() for part in (key, *join.norms, *join.final)} - {"norm"}
APART |= {"shared_head", "embed_tokens", "lm_head", "head"}
# Parts that no layer of a trunk has.
MARKS = ("eh_proj", "enorm", "hnorm", "shared_head")


@dataclass(frozen=True, slots=True)
class Module:
    """One module. `parts` are its tensors outside of decoder layers, `layers` those of each decoder layer by what they
    are called in it. `join` is a key of `JOINS`; `at` is the tensor that stands for the projection."""

    join: str
    at: str
    parts: tuple[str, ...]
    layers: Mapping[str, Mapping[str, str]]

    def has(self, part: str) -> bool:
        """Whether a part is there, under its name anywhere in the module; `norm` only outside of layers."""
        return any(f".{part}." in f".{name}" for name in self.parts)

    def missing(self) -> list[str]:
        """Norms that the family's layout has and this module has not, as names in the way of the projection's."""
        join = JOINS[self.join]
        lacking = [part for part in join.norms if not self.has(part)]
        if join.final and not any(self.has(part) for part in join.final):
            lacking.append(join.final[0])
        before, index = around(self.at, self.join)
        return [f"{before}{part}.{index}.weight" if index else f"{before}{part}.weight" for part in lacking]


def mtp_tensors(names: Iterable[str], num_layers: int) -> list[str]:
    """Those that belong to MTP modules: in a namespace of theirs, or in layers from `num_layers` on."""
    # Of 90,000 names nearly all are told by their number, and without an expression.
    trunk = {str(i) for i in range(num_layers)} | {""}
    return [
        name
        for name in names
        if (name.partition("layers.")[2].partition(".")[0] not in trunk and beyond(name, num_layers))
        or in_namespace(name)
    ]


def in_namespace(name: str) -> bool:
    """Whether a tensor lies in a namespace of MTP modules."""
    return ("mtp" in name or "nextn" in name) and NAMESPACE.search(name) is not None


def beyond(name: str, num_layers: int) -> bool:
    """Whether a tensor is of a decoder layer from `num_layers` on."""
    match = LAYER.search(name)
    return match is not None and int(match[1]) >= num_layers and not TOWER.search(name)


def has_mark(name: str) -> bool:
    """Whether a tensor of a numbered layer shows that the layer is an MTP module: of its joint or its end."""
    return any(part in MARKS for part in name.split("."))


def has_join(names: Iterable[str]) -> bool:
    """Whether the projection that joins hidden state and embedding is among them, quantized or not."""
    return any(join_of(name) is not None for name in names)


def join_of(name: str) -> str | None:
    """The family's word for the projection, where a tensor is of it."""
    return next((part for part in name.split(".")[-3:] if part in JOINS), None)


def around(name: str, word: str) -> tuple[str, str]:
    """What stands before a projection's word in its tensor's name, and the number behind it, "" without one."""
    before, _, after = name.rpartition(f"{word}.")
    number = after.partition(".")[0]
    return before, number if number.isdecimal() else ""


def modules(names: Iterable[str]) -> list[Module]:
    """The modules that these MTP tensors make: one for each projection that joins."""
    names = list(names)
    joins: dict[tuple[str, str], str] = {}
    for name in names:
        word = join_of(name)
        if word is not None:
            before, number = around(name, word)
            joins.setdefault((f"{before}{word}.{number}", word), name)
    if len(joins) == 1:
        (((_, word), at),) = joins.items()
        return [module(word, at, names)]
    return [
        module(word, at, [name for name in names if name.startswith(around(at, word)[0])])
        for (_, word), at in joins.items()
    ]


def module(word: str, at: str, names: Iterable[str]) -> Module:
    """One module of these tensors."""
    parts: list[str] = []
    layers: dict[str, dict[str, str]] = {}
    for name in names:
        match = UNIT.match(name)
        if match is None or match[2].partition(".")[0] in APART:
            parts.append(name)
        else:
            layers.setdefault(match[1], {})[match[2]] = name
    if not layers:
        # A single layer that has no number of its own.
        start, _ = around(at, word)
        inner = {name.removeprefix(start): name for name in parts if name.startswith(start)}
        inner = {part: name for part, name in inner.items() if part.partition(".")[0] not in APART | {"norm"}}
        if inner:
            layers[start.removesuffix(".")] = inner
            parts = [name for name in parts if name not in inner.values()]
    return Module(word, at, tuple(parts), layers)


def count_modules(found: Iterable[Module]) -> int:
    """Modules as configs count them: Qwen's one projection serves as many layers as the config says."""
    return sum(len(one.layers) if one.join == "fc" else 1 for one in found)
