"""Names and element types that quantizers leave in a checkpoint: what is a weight, and what stands beside one."""

FLOATS = ("F64", "F32", "F16", "BF16")
# Eight bits with one element for each weight, so that the shape is the weight's own.
EIGHT_BIT_FLOATS = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
# Types that hold several weights in an element, or may; with eight bits in an integer only the name tells.
SHARED = ("F4", "U8", "I16", "U16", "I32", "U32")
FOUR_BITS = ("F4", "U8", "I32", "U32")
# Every type that a quantized weight may have.
QUANTIZED = (*EIGHT_BIT_FLOATS, *SHARED, "I8", "F6_E2M3", "F6_E3M2")
# Last parts of the names of packed weights, and ends of those that have no part of their own.
PACKED_NAMES = ("weight_packed", "qweight")
PACKED_ENDS = ("_blocks", ".packed")
WEIGHT_NAMES = ("weight", *PACKED_NAMES)
# What stands beside a weight.
SCALE_ENDS = (
    "_scale", "_scale_inv", "_scales", "_zero_point", "_shape", "_g_idx", "_global_scale", ".scale", ".scales",
    ".biases",
)  # fmt: skip
SCALE_NAMES = ("qzeros", "g_idx", "weight_scale_2")
# Buffers that are rebuilt anyway, and scales of a quantized cache.
REBUILT = (".inv_freq", "attention.bias", "attn.masked_bias", ".k_scale", ".v_scale", ".q_scale", ".prob_scale")
# Scales of activations and of the cache: they say nothing of how weights are stored.
OTHER_SCALES = ("input_scale", "output_scale", "k_scale", "v_scale", "q_scale", "prob_scale")


def last_part(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def stem(name: str) -> str:
    """The module of a tensor: its name without the last part."""
    return name.rpartition(".")[0]


def is_packed(name: str) -> bool:
    """Whether this is a weight under a name that only packed ones have."""
    return name.endswith(PACKED_ENDS) or last_part(name) in PACKED_NAMES


def is_weight(name: str) -> bool:
    """Whether this is a module's weight, quantized or not."""
    return last_part(name) == "weight" or is_packed(name)


def is_scale(name: str) -> bool:
    """Whether this stands beside a quantized weight: a scale, a zero point, an order or shape of columns."""
    return name.endswith(SCALE_ENDS) or last_part(name) in SCALE_NAMES


def is_rebuilt(name: str) -> bool:
    """Whether a tensor is a buffer that is rebuilt anyway, or a scale of a quantized cache."""
    return "rotary_emb" in name or name.endswith(REBUILT)
