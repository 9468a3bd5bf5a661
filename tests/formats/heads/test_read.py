"""From a config and headers to a `Head`, whatever family wrote them; and from nonsense to one sentence."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields
from codraft.formats.heads.detect import detect
from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import expected
from codraft.formats.heads.read import read_head
from codraft.formats.safetensors import TensorInfo

from tests.checkpoints import as_layout
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import RANK, VD, H, Side, Tensors, V, layer, layer_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
LAYOUTS = [name for name in ALL if ALL[name]().drafter is not None and name != "external"]


def side(name: str) -> Side:
    """The drafter of a layout."""
    found = ALL[name]().drafter
    assert found is not None
    return found


def headers(tensors: Tensors) -> dict[str, TensorInfo]:
    """Tensors as headers show them."""
    return {
        name: TensorInfo(
            name=name, dtype=as_layout(t)[0], shape=as_layout(t)[1], file="model.safetensors", start=0, stop=0
        )
        for name, t in tensors.items()
    }


def read(config: dict[str, Any], tensors: Tensors | None = None) -> Head:
    """The head that these describe."""
    kind = detect(config, tensors or {})
    assert kind is not None
    return read_head(kind, config, headers(tensors or {}), "head/config.json")


def changed(name: str, own: Tensors | None = None, /, **more: Any) -> Head:
    """A layout with other keys; None takes one away."""
    base = side(name)
    config = {key: value for key, value in {**base.config, **more}.items() if value is not None}
    return read(config, base.tensors if own is None else own)


@pytest.mark.parametrize(
    ("name", "taps", "convention"),
    [("eagle3", (1, 5, 8), "input"), ("eagle3_modelopt", (1, 5, 8), "output"),
     ("eagle3_speculators", (1, 5, 8), "input"), ("eagle3_deepspec", (1, 3, 5, 7, 9), "output"),
     ("dflash", (1, 5, 9), "output"), ("dspark", (1, 5, 9), "output"),
     ("dflash_speculators", (1, 5, 9), "input"), ("dspark_speculators", (1, 5, 9), "input"),
     ("dspark_modelopt", (1, 5, 9), "output"), ("dspark_specforge", (1, 5, 9), "output"), ("mtp_file", None, None)],
)  # fmt: skip
def test_layer_ids_become_outputs_whatever_convention_they_are_written_in(
    name: str, taps: tuple[int, ...] | None, convention: str | None
) -> None:
    head = read(side(name).config, side(name).tensors)

    assert (head.taps[0].outputs if head.taps else None) == taps
    assert (head.taps[0].convention if head.taps else None) == convention
    assert head.num_taps == (len(taps) if taps else 1)


@pytest.mark.parametrize(
    ("name", "alignment", "most"),
    [("eagle3", "shifted", None), ("mtp_file", "shifted", None), ("dflash", "same_slot", 7),
     ("dflash_speculators", "same_slot", 7), ("dspark", "next_slot", 7), ("dspark_modelopt", "next_slot", 7),
     ("dspark_specforge", "next_slot", 7), ("dspark_speculators", "next_slot", 8)],
)  # fmt: skip
def test_a_block_drafts_with_all_of_its_slots_or_with_all_but_the_anchors(
    name: str, alignment: str, most: int | None
) -> None:
    head = read(side(name).config, side(name).tensors)

    assert (head.alignment, head.max_D) == (alignment, most)


@pytest.mark.parametrize(
    ("key", "flag", "alignment"),
    [("sample_from_anchor", True, "next_slot"), ("sample_from_anchor", False, "same_slot"),
     ("shift_label", True, "next_slot"), ("shift_label", False, "same_slot")],
)  # fmt: skip
def test_a_switch_of_the_config_decides_the_alignment(key: str, flag: bool, alignment: str) -> None:
    for name in ("dflash", "dspark"):
        assert changed(name, **{key: flag}).alignment == alignment
    nested = {"mask_token_id": 4, "target_layer_ids": [1], "shift_label": flag}
    assert changed("dflash", dflash_config=nested).alignment == ("next_slot" if flag else "same_slot")


def test_domino_shifts_by_itself() -> None:
    nested = {"projector_type": "domino", "mask_token_id": 4, "target_layer_ids": [1]}

    assert changed("dflash", dflash_config=nested).alignment == "next_slot"


@pytest.mark.parametrize(
    ("name", "kind", "confidence"),
    [("dspark", "vanilla", True), ("dspark_modelopt", "gated", True), ("dspark_specforge", "rnn", False),
     ("dspark_speculators", "vanilla", True)],
)  # fmt: skip
def test_markov_heads_are_read_from_the_top_and_from_nested_keys(name: str, kind: str, confidence: bool) -> None:
    markov = read(side(name).config, side(name).tensors).markov

    assert markov is not None
    assert (markov.rank, markov.kind, markov.confidence) == (RANK, kind, confidence)
    # SpecForge leaves the embedding out where nothing asks for it.
    assert markov.confidence_with_markov is (name != "dspark_specforge")


@pytest.mark.parametrize(
    ("name", "keys", "confidence", "with_markov"),
    [("dspark_specforge", {"confidence_head_alpha": 1.0}, True, False),
     ("dspark_specforge", {"confidence_head_alpha": 1.0, "enable_confidence_head": False}, False, False),
     ("dspark_specforge", {"confidence_head_alpha": 0.5, "confidence_head_with_markov": True}, True, True),
     ("dspark_modelopt", {"use_confidence_head": False}, False, True)],
)  # fmt: skip
def test_a_confidence_head_that_nobody_names_is_as_the_familys_class_takes_it(
    name: str, keys: dict[str, Any], confidence: bool, with_markov: bool
) -> None:
    nested = {key: value for key, value in side(name).config["dflash_config"].items() if "confidence" not in key}
    bare = {key: tensor for key, tensor in side(name).tensors.items() if "confidence" not in key}
    markov = changed(name, bare, dflash_config={**nested, **keys}).markov
    library = changed("dspark_speculators", enable_confidence_head=None, confidence_head_with_markov=None).markov

    assert markov is not None
    assert (markov.confidence, markov.confidence_with_markov) == (confidence, with_markov)
    assert library is not None
    assert (library.confidence, library.confidence_with_markov) == (True, True)


@pytest.mark.parametrize(("width", "with_markov"), [(H, False), (H + RANK, True)])
def test_a_confidence_head_that_nobody_names_is_seen_by_its_width(width: int, *, with_markov: bool) -> None:
    own: Tensors = {**side("dspark_specforge").tensors, "confidence_head.proj.weight": ("BF16", (1, width))}
    markov = changed("dspark_specforge", own).markov

    assert markov is not None
    assert (markov.confidence, markov.confidence_with_markov) == (True, with_markov)


def test_the_first_block_size_counts_and_all_are_kept() -> None:
    nested = {"block_size": 16, "mask_token_id": 4, "target_layer_ids": [1]}
    block = changed("dflash", dflash_config=nested).block

    assert block is not None
    assert block.size == 8
    assert block.sizes == {"block_size": 8, "dflash_config.block_size": 16}
    assert (block.mask_token_id, block.mask_key) == (4, "dflash_config.mask_token_id")


@pytest.mark.parametrize(
    ("more", "causal"),
    [({}, None), ({"is_causal": False}, False), ({"sliding_window_non_causal": True}, False),
     ({"sliding_window_non_causal": False}, True),
     ({"dflash_config": {"causal": True, "target_layer_ids": [1]}, "sliding_window_non_causal": True}, True)],
)  # fmt: skip
def test_whether_a_block_is_causal_is_read_from_each_familys_key(more: dict[str, Any], causal: bool | None) -> None:
    block = changed("dflash", **more).block

    assert block is not None
    assert block.causal is causal


def test_the_draft_vocabulary_is_known_from_the_map_where_the_config_is_silent() -> None:
    head = changed("eagle3", draft_vocab_size=None)

    assert head.draft_vocab_size == VD
    assert head.reduced
    assert not read(side("dflash").config).reduced
    assert changed("eagle3", draft_vocab_size=V).reduced is False


@pytest.mark.parametrize(
    ("more", "tensors", "width", "basis"),
    [({}, {}, 8, "given"), ({"head_dim": None}, {}, 8, "assumed"),
     ({"head_dim": None}, {"midlayer.self_attn.q_proj.weight": ("BF16", (128, 128)),
                           "midlayer.self_attn.k_proj.weight": ("BF16", (64, 128))}, 16, "headers"),
     ({"head_dim": None, "num_attention_heads": 7}, {}, 9, "assumed")],
)  # fmt: skip
def test_the_width_of_a_head_is_the_configs_then_the_tensors_then_a_guess(
    more: dict[str, Any], tensors: Tensors, width: int, basis: str
) -> None:
    geometry = changed("eagle3", tensors, **more).geometry

    assert (geometry.head_dim, geometry.head_dim_basis) == (width, basis)


def test_drafters_for_gemma4_have_the_heads_of_its_global_layers() -> None:
    config = layer_config(
        architectures=["Gemma4DSparkModel"], global_head_dim=16, num_global_key_value_heads=2, attention_k_eq_v=True,
        markov_rank=0, target_layer_ids=[1], block_size=7, mask_token_id=4,
    )  # fmt: skip
    head = read(config)

    assert (head.geometry.head_dim, head.geometry.num_kv_heads) == (16, 2)
    assert read({**config, "attention_k_eq_v": False}).geometry.num_kv_heads == 4
    names = {item.name: item for item in expected(head) or ()}
    assert names["layers.0.self_attn.k_proj.weight"].shape == (2 * 16, H)
    assert not names["layers.0.self_attn.v_proj.weight"].required
    assert names["layers.0.pre_feedforward_layernorm.weight"].shape == (H,)


def test_a_midlayer_is_one_layer_whatever_the_config_counts() -> None:
    assert changed("eagle3", num_hidden_layers=32).geometry.num_layers == 1
    assert changed("dflash").geometry.num_layers == 2


def test_features_are_counted_by_fc_where_no_ids_are_there() -> None:
    silent = {"eagle_aux_hidden_state_layer_ids": None}

    assert changed("eagle3", **silent).num_taps == 3
    assert changed("eagle3", {**layer("midlayer"), "fc.weight": ("BF16", (H, 5 * H))}, **silent).num_taps == 5
    assert changed("eagle3", {**layer("midlayer"), "fc.weight": ("BF16", (H, 100))}, **silent).num_taps == 3


def test_configs_copied_from_a_target_without_mtp_are_read() -> None:
    assert changed("dflash", num_nextn_predict_layers=0, mtp_num_hidden_layers=0).num_modules == 1
    assert changed("mtp_file", num_nextn_predict_layers=3).num_modules == 3


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=25)
@given(data=st.data())
def test_whatever_stands_under_a_key_gives_a_head_or_one_sentence(name: str, data: st.DataObject) -> None:
    config = side(name).config
    keys = [*config, *(f"{part}.{key}" for part, inner in config.items() if isinstance(inner, dict) for key in inner)]
    key = data.draw(
        st.sampled_from([*keys, "target_hidden_size", "markov_rank", "head_dim", "eagle_config", "text_config"])
    )
    *parts, last = key.split(".")
    at = config
    for part in parts:
        at = at[part]
    at[last] = data.draw(JSON)

    kind = detect(config, side(name).tensors)
    if kind is None:
        return
    try:
        head = read_head(kind, config, headers(side(name).tensors), "head/config.json")
    except SpecError as error:
        refused = str(error)
        assert refused.startswith("head/config.json: ") and "\n" not in refused  # noqa: PT018
        return
    assert len(expected(head) or ()) < 100_000
    assert head.num_taps >= 1
    assert min(head.geometry.hidden, head.geometry.num_heads, head.geometry.head_dim, head.target_hidden) >= 1


@pytest.mark.parametrize("value", [True, "8", 8.5, -1, 0, 1 << 41, float("nan"), float("inf"), [8], {}])
def test_a_size_is_a_whole_number_that_can_be(value: Any) -> None:
    with pytest.raises(SpecError, match=r"c\.json: a\.b is .*, expected a whole number (of at least 1|from 1 to)"):
        Fields({"a": {"b": value}}, file="c.json").size("a.b")


def test_a_size_may_be_left_out() -> None:
    fields = Fields({"a": {"b": 8, "c": None, "d": 8.0}}, file="c.json")

    assert fields.size("a.b") == fields.size("a.d") == 8
    assert fields.size("a.c") is None
    assert fields.size("a.b.d") is None


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(SpecError) as raised:
        Fields({"ids": "x" * 10_000}, file="c.json").ids("ids")

    assert len(str(raised.value)) < 200
