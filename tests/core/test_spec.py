"""What a user may ask for, and how a slip is named."""

import math
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.spec import (
    MAX_DEPTH,
    ExternalSpec,
    NgramSpec,
    Sampling,
    SuffixSpec,
    check_choice,
    check_depth,
    load,
    options_of,
    parse_drafter,
    parse_drafters,
    parse_list,
    sampling_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    inner: Inner
    share: float = 0.5


def test_a_bare_mechanism_is_its_spec_with_defaults() -> None:
    assert parse_drafter("ngram") == NgramSpec()


def test_options_after_the_mechanism_are_read_by_type() -> None:
    assert parse_drafter("ngram,n_max=3,occurrence=earliest,name=early") == NgramSpec(
        n_max=3, occurrence="earliest", name="early"
    )


@pytest.mark.parametrize(("n_min", "n_max"), [(1, 64), (1, 1), (64, 64)])
def test_the_ends_of_the_ngram_range_are_allowed(n_min: int, n_max: int) -> None:
    assert parse_drafter(f"ngram,n_min={n_min},n_max={n_max}") == NgramSpec(n_min=n_min, n_max=n_max)


def test_an_external_drafter_takes_its_path_after_the_colon() -> None:
    assert parse_drafter("external:a/b:c,draft=sample") == ExternalSpec(path="a/b:c", draft="sample")


def test_an_external_drafter_may_keep_its_first_layers_alone() -> None:
    assert parse_drafter("external:a,layers=8") == ExternalSpec(path="a", layers=8)
    assert ExternalSpec(path="a").layers is None


def test_suffix_has_the_defaults_that_vllm_has() -> None:
    assert parse_drafter("suffix") == SuffixSpec(
        max_tree_depth=24, max_cached_requests=10_000, max_spec_factor=1.0, min_token_prob=0.1
    )


@pytest.mark.parametrize(
    ("option", "ends"),
    [
        ("max_tree_depth", (2, 512)),
        ("max_cached_requests", (0, 1_000_000)),
        ("max_spec_factor", (1e-9, 64.0)),
        ("min_token_prob", (0.0, 1.0)),
    ],
)
def test_the_ends_of_every_suffix_range_are_allowed(option: str, ends: tuple[float, float]) -> None:
    for end in ends:
        assert getattr(parse_drafter(f"suffix,{option}={end}"), option) == end


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ngrm", ["unknown mechanism 'ngrm'", "ngram", "external"]),
        ("", ["unknown mechanism ''"]),
        ("ngram,n_mx=3", ["unknown option 'n_mx'", "n_max"]),
        ("ngram,n_max", ["'n_max' is not key=value"]),
        ("ngram,n_max=", ["'n_max=' is not key=value"]),
        ("ngram,", ["'' is not key=value"]),
        ("ngram,n_max=3,n_max=4", ["'n_max' is given twice"]),
        ("ngram,mechanism=external", ["'mechanism' is given twice or not an option"]),
        ("external:a,path=b", ["'path' is given twice or not an option"]),
        ("ngram,n_max=three", ["n_max='three'", "integer"]),
        ("ngram,n_max=2.5", ["n_max='2.5'", "integer"]),
        ("ngram,occurrence=first", ["occurrence='first'", "earliest", "latest"]),
        ("ngram,n_min=0", ["1 <= n_min <= n_max <= 64", "n_min=0"]),
        ("ngram,n_min=5", ["1 <= n_min <= n_max <= 64", "n_min=5"]),
        ("ngram,n_max=65", ["1 <= n_min <= n_max <= 64", "n_max=65"]),
        ("ngram:folder", ["ngram takes no model"]),
        ("ngram:", ["ngram takes no model"]),
        ("external", ["external needs a model", "external:PATH_OR_ID"]),
        ("external:", ["external needs a model"]),
        ("external:a,draft=random", ["draft='random'", "greedy", "sample"]),
        ("external:a,layers=0", ["external: layers must be at least 1; got 0"]),
        ("external:a,layers=1.5", ["layers='1.5'", "integer"]),
        ("suffix:folder", ["suffix takes no model"]),
        ("suffix,depth=3", ["unknown option 'depth'", "max_tree_depth, max_cached_requests"]),
        ("suffix,max_tree_depth=1", ["max_tree_depth must be in 2..512; got 1"]),
        ("suffix,max_tree_depth=513", ["max_tree_depth must be in 2..512; got 513"]),
        ("suffix,max_cached_requests=-1", ["max_cached_requests must be in 0..1000000", "got -1"]),
        ("suffix,max_cached_requests=1000001", ["max_cached_requests must be in 0..1000000", "got 1000001"]),
        ("suffix,max_spec_factor=0", ["max_spec_factor must be above 0 and at most 64; got 0.0"]),
        ("suffix,max_spec_factor=64.5", ["max_spec_factor must be above 0 and at most 64; got 64.5"]),
        ("suffix,max_spec_factor=nan", ["max_spec_factor='nan'", "finite"]),
        ("suffix,min_token_prob=-0.1", ["min_token_prob must be in 0..1; got -0.1"]),
        ("suffix,min_token_prob=1.1", ["min_token_prob must be in 0..1; got 1.1"]),
        ("eagle3", ["eagle3 needs a model", "eagle3:PATH_OR_ID"]),
        ("mtp:", ["mtp is given no model after the colon"]),
        ("dflash:a,block=grow", ["block='grow'", "resize", "truncate"]),
        ("dspark:a,confidence=1.5", ["confidence must be in 0..1; got 1.5"]),
        ("dspark:a,confidence=0.5,timing=t.json", ["confidence= or timing=, not both"]),
        ("ngram,name=a b", ["name must be 1 to 64"]),
        ("ngram,name=" + "x" * 65, ["name must be 1 to 64"]),
    ],
)
def test_a_drafter_that_cannot_be_is_refused_in_words_that_name_the_slip(text: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_drafter(text)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_option_is_answered_with_the_options_that_can_be_given() -> None:
    with pytest.raises(SpecError, match=r"known here: name, draft, layers$"):
        parse_drafter("external:a,drft=sample")


def test_unnamed_repeats_of_a_mechanism_are_numbered() -> None:
    assert [spec.name for spec in parse_drafters(["ngram", "ngram", "external:a", "ngram"])] == [
        "ngram",
        "ngram-2",
        "external",
        "ngram-3",
    ]


def test_a_number_that_somebody_chose_as_name_is_passed_over() -> None:
    specs = parse_drafters(["ngram", "ngram", "ngram,n_max=3,name=ngram-2"])
    assert [spec.name for spec in specs] == ["ngram", "ngram-3", "ngram-2"]


def test_a_chosen_name_takes_the_mechanisms_own() -> None:
    assert [spec.name for spec in parse_drafters(["ngram", "external:a,name=ngram"])] == ["ngram-2", "ngram"]


def test_two_drafters_cannot_choose_the_same_name() -> None:
    with pytest.raises(SpecError, match="two drafters are named 'x'"):
        parse_drafters(["ngram,name=x", "external:a,name=x"])


@given(st.lists(st.sampled_from(["ngram", "ngram,n_max=3", "external:a", "ngram,name=n1"]), max_size=6))
def test_drafters_keep_their_order_and_every_name_is_its_own(texts: list[str]) -> None:
    if texts.count("ngram,name=n1") > 1:
        return
    specs = parse_drafters(texts)
    assert [spec.mechanism for spec in specs] == [text.split(",")[0].split(":")[0] for text in texts]
    assert len({spec.name for spec in specs}) == len(texts)


def test_a_records_options_are_all_but_mechanism_name_and_path() -> None:
    assert options_of(NgramSpec(n_max=3)) == {"n_min": 2, "n_max": 3, "occurrence": "latest"}
    assert options_of(ExternalSpec(path="a")) == {"draft": "greedy"}
    assert options_of(ExternalSpec(path="a", layers=8)) == {"draft": "greedy", "layers": 8}
    assert options_of(SuffixSpec(name="s", max_tree_depth=8)) == {
        "max_tree_depth": 8,
        "max_cached_requests": 10_000,
        "max_spec_factor": 1.0,
        "min_token_prob": 0.1,
    }


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("4", [4]),
        ("1,2,4", [1, 2, 4]),
        ("0..8", list(range(9))),
        ("4,1,4", [1, 4]),
        ("1,3..5", [1, 3, 4, 5]),
        (" 2 , 3 ", [2, 3]),
        ("5..5", [5]),
    ],
)
def test_a_list_is_its_sorted_distinct_numbers(text: str, numbers: list[int]) -> None:
    assert parse_list(text, "--depth", lowest=0, highest=8) == numbers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a list"),
        ("1,,2", "is not a list"),
        ("1;2", "is not a list"),
        ("1...3", "is not a list"),
        ("1.5", "is not a list"),
        ("0..", "is not a list"),
        ("x", "is not a list"),
        ("4..1", "4..1 runs backwards"),
        ("-1", "values must be in 0..8"),
        ("0..9", "values must be in 0..8"),
    ],
)
def test_what_is_no_list_of_allowed_numbers_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        parse_list(text, "--depth", lowest=0, highest=8)
    assert f"--depth '{text}'" in str(caught.value)


def test_a_list_without_upper_limit_still_stops_at_absurd_sizes() -> None:
    with pytest.raises(SpecError, match="more than 100000"):
        parse_list("1..100001", "--batch", lowest=1)
    assert len(parse_list("1..100000", "--batch", lowest=1)) == 100_000
    with pytest.raises(SpecError, match="1 and above"):
        parse_list("0", "--batch", lowest=1)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, -math.inf])
def test_a_temperature_that_is_not_a_number_from_0_is_refused(value: float) -> None:
    with pytest.raises(SpecError, match="temperature must be a number >= 0"):
        Sampling(temperature=value)


@pytest.mark.parametrize("value", [0.0, -0.5, 1.1, math.nan, math.inf])
def test_a_top_p_outside_0_to_1_is_refused(value: float) -> None:
    with pytest.raises(SpecError, match="top-p must be above 0 and at most 1"):
        Sampling(top_p=value)


def test_a_negative_top_k_is_refused() -> None:
    with pytest.raises(SpecError, match="top-k must be >= 0"):
        Sampling(top_k=-1)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_seed_that_does_not_fit_63_bits_is_refused(value: int) -> None:
    with pytest.raises(SpecError, match="seed must be in"):
        Sampling(seed=value)


def test_the_ends_of_every_sampling_range_are_allowed() -> None:
    Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0)
    Sampling(temperature=100.0, top_p=1e-9, top_k=10**6, seed=2**63 - 1)


def test_sampling_is_none_where_nothing_was_asked_and_default_in_what_was_not() -> None:
    assert sampling_of(None, None, None, None) is None
    assert sampling_of(0.0, None, None, None) == Sampling()
    assert sampling_of(None, 0.5, None, None) == Sampling(top_p=0.5)
    assert sampling_of(None, None, 0, None) == Sampling()
    assert sampling_of(0.7, None, 9, 3) == Sampling(temperature=0.7, top_k=9, seed=3)


def test_only_temperature_0_is_greedy_and_that_is_the_default() -> None:
    assert Sampling().greedy
    assert Sampling() == Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0)
    assert not Sampling(temperature=1e-6).greedy


@pytest.mark.parametrize("D", [0, MAX_DEPTH + 1, -1])
def test_a_draft_length_outside_its_range_is_refused_with_the_range(D: int) -> None:
    with pytest.raises(SpecError, match=rf"must be in 1..{MAX_DEPTH}; got {D}$"):
        check_depth(D, lowest=1)


def test_a_draft_length_in_its_range_is_itself() -> None:
    assert (check_depth(0, lowest=0), check_depth(MAX_DEPTH, lowest=1)) == (0, MAX_DEPTH)


def test_a_choice_outside_the_literal_is_refused_with_all_choices() -> None:
    assert check_choice("live", "--mode", Literal["replay", "live"]) == "live"
    with pytest.raises(SpecError, match="--mode must be one of replay, live; got 'Live'"):
        check_choice("Live", "--mode", Literal["replay", "live"])


def test_data_of_the_right_shape_loads() -> None:
    assert load(Outer, {"name": "a", "inner": {"size": 3}}, "here") == Outer(name="a", inner=Inner(size=3))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"name": "a", "inner": {"size": 3}, "shre": 1.0},
            "here: unknown option 'shre'; known here: name, inner, share",
        ),
        ({"name": "a", "inner": {"size": 3, "sze": 1}}, "here: unknown option 'inner.sze'"),
        ({"inner": {"size": 3}}, "here: 'name' is missing"),
        ({"name": "a", "inner": {}}, "here: 'inner.size' is missing"),
        ({"name": "a", "inner": {"size": "big"}}, "here: inner.size='big': input should be a valid integer"),
        ({"name": 7, "inner": {"size": 3}}, "here: name=7: input should be a valid string"),
        ({"name": "a", "inner": None}, "here: inner=None: "),
        (None, "here: None: input should be an object"),
    ],
)
def test_data_of_another_shape_is_refused_by_its_dotted_path(data: dict[str, object] | None, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(Outer, data, "here")
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("share", ["0.5", True, None])
def test_data_of_a_looser_type_is_refused(share: object) -> None:
    with pytest.raises(SpecError, match=f"^here: share={share!r}: input should be a valid number"):
        load(Outer, {"name": "a", "inner": {"size": 3}, "share": share}, "here")


@pytest.mark.parametrize("share", [math.nan, math.inf])
def test_what_is_no_finite_number_is_refused(share: float) -> None:
    with pytest.raises(SpecError, match=r"^here: share=.*: input should be a finite number"):
        load(Outer, {"name": "a", "inner": {"size": 3}, "share": share}, "here")


def test_a_whole_number_will_do_for_a_share_and_option_strings_for_anything() -> None:
    assert load(Outer, {"name": "a", "inner": {"size": 3}, "share": 1}, "here").share == 1.0
    loose = load(Outer, {"name": "a", "inner": {"size": "3"}, "share": "1"}, "here", strict=False)
    assert loose == Outer(name="a", inner=Inner(size=3), share=1.0)


def test_a_drafter_names_the_models_it_needs() -> None:
    assert NgramSpec().model_paths() == ()
    assert SuffixSpec().model_paths() == ()
    assert ExternalSpec(path="a/b").model_paths() == ("a/b",)


def test_an_unknown_key_inside_is_not_answered_with_the_keys_outside() -> None:
    with pytest.raises(SpecError) as caught:
        load(Outer, {"name": "a", "inner": {"size": 3, "sze": 1}}, "here")
    assert "known here" not in str(caught.value)


def test_a_value_refused_by_the_spec_itself_keeps_its_sentence() -> None:
    with pytest.raises(SpecError, match=r"^row 3: top-p must be above 0 and at most 1 .*; got 2.0$"):
        load(Sampling, {"top_p": 2}, "row 3")
