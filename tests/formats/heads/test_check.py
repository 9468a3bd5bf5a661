"""Every tensor that is missing, unexpected, misshapen or mistyped is named, in one sentence for each kind."""

import pytest

from codraft.formats.heads.check import MOST_LISTED, tensor_faults
from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import canonical_names

from tests.checkpoints import as_layout
from tests.formats.heads.test_layout import REQUIRED
from tests.formats.heads.test_read import headers, read, side
from tests.models.inspect.pairs import H, Tensors


def faults(name: str, *, without: tuple[str, ...] = (), own: Tensors | None = None) -> list[str]:
    """What is said of a layout whose tensors are changed."""
    base = side(name)
    tensors = {key: tensor for key, tensor in base.tensors.items() if key not in without} | (own or {})
    head: Head = read(base.config, base.tensors)
    return tensor_faults(head, canonical_names(head.kind, headers(tensors)))


@pytest.mark.parametrize("name", REQUIRED)
def test_a_familys_own_file_has_no_fault(name: str) -> None:
    assert faults(name) == []


@pytest.mark.parametrize("name", REQUIRED)
def test_each_tensor_that_a_head_needs_is_missed_by_its_name(name: str) -> None:
    base = side(name)
    kind = read(base.config, base.tensors).kind
    stored = {key: old for old in base.tensors for key in canonical_names(kind, headers({old: base.tensors[old]}))}

    for key in REQUIRED[name]:
        assert faults(name, without=(stored[key],)) == [f"1 tensor is missing: {key}"]


@pytest.mark.parametrize("name", REQUIRED)
def test_each_tensor_of_another_shape_is_named_with_both(name: str) -> None:
    base = side(name)
    kind = read(base.config, base.tensors).kind
    for old, tensor in base.tensors.items():
        (key,) = canonical_names(kind, headers({old: tensor}))
        if key not in REQUIRED[name]:
            continue
        dtype, shape = as_layout(tensor)
        said = faults(name, own={old: (dtype, (*shape, 2))})
        assert said == [
            "1 tensor has another shape than the config gives: "
            f"{key} is {[*shape, 2]}, expected {list(REQUIRED[name][key])}"
        ]


def test_what_has_no_place_is_named_and_buffers_and_scales_have_theirs() -> None:
    assert faults("eagle3", own={"extra.weight": ("BF16", (2,))}) == ["1 tensor is unexpected: extra.weight"]
    assert faults("eagle3", own={"rotary_emb.inv_freq": ("F32", (4,))}) == []
    assert faults("dflash", own={"layers.0.self_attn.rotary_emb.inv_freq": ("F32", (4,))}) == []
    quantized: Tensors = {"fc.weight": ("F8_E4M3", (H, 3 * H)), "fc.weight_scale": ("F32", (1,))}
    assert faults("eagle3", own=quantized) == []
    packed: Tensors = {"fc.weight_packed": ("U8", (H, 3 * H // 2)), "fc.weight_scale": ("F8_E4M3", (H, 12))}
    assert faults("eagle3", without=("fc.weight",), own=packed) == []
    assert faults("eagle3", own={"other.weight_scale": ("F32", (1,))}) == ["1 tensor is unexpected: other.weight_scale"]


def test_kinds_of_faults_have_a_sentence_each_and_long_lists_are_cut() -> None:
    own: Tensors = {f"more.{i}.weight": ("BF16", (1,)) for i in range(MOST_LISTED + 3)}
    said = faults("eagle3", without=("norm.weight", "fc.weight"), own={**own, "d2t": ("F32", (128,))})

    assert said == [
        "2 tensors are missing: fc.weight; norm.weight",
        "1 tensor is of a type that it cannot have: d2t is stored as F32",
        "11 tensors are unexpected: " + "; ".join(f"more.{i}.weight" for i in range(MOST_LISTED)) + " and 3 more",
    ]
    (said_of_marks,) = faults("eagle3", own={"t2d": ("F32", (512,))})
    assert said_of_marks.endswith("t2d is stored as F32")


def test_of_a_layout_that_differs_by_target_nothing_is_said() -> None:
    assert faults("mtp_file", own={"extra.weight": ("BF16", (2,))}) == []
