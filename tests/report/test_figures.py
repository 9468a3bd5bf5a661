"""Charts hold the records' numbers, and nothing where there is none."""

from dataclasses import replace
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.report import Study, render
from codraft.report.figures.acceptance import acceptance_figure
from codraft.report.figures.attention import attention_figure, shares_figure
from codraft.report.figures.breakeven import between, breakeven_figure
from codraft.report.figures.frontier import frontier_figure
from codraft.report.figures.gemm import gemm_figure
from codraft.report.figures.heat import heat_figure
from codraft.report.study import Book

from tests.report import measured, sample
from tests.report.reading import Page


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """The charts of the full page, as its script reads them."""
    return Page(render(sample.full())).figures()


def traces(figures: dict[str, Any], figure: str, panel: int = 0, variant: int = 0) -> list[dict[str, Any]]:
    """Traces that answer a hover."""
    data = figures[figure]["panels"][panel]["variants"][variant]["data"]
    return [trace for trace in data if trace["hoverinfo"] != "skip"]


def timed(study: Study) -> Any:
    assert study.timing is not None
    return study.timing


def test_acceptance_lines_equal_the_record_whole_and_by_domain(figures: dict[str, Any]) -> None:
    record = measured.acceptance()
    lines = traces(figures, "acceptance")
    solid = [line for line in lines if line["line"]["dash"] == "solid"]
    assert [line["y"] for line in solid] == [[p.AL for p in r.curve] for r in record.results]
    assert all(line["x"] == list(range(1, 9)) for line in solid)
    coding = traces(figures, "acceptance", variant=1)
    assert [line["y"] for line in coding] == [[p.AL for p in r.domains["coding"].curve] for r in record.results]


def test_the_cold_curve_is_dashed_and_in_its_drafters_colour(figures: dict[str, Any]) -> None:
    cold = measured.result("suffix").cold
    assert cold is not None
    dashed = [line for line in traces(figures, "acceptance") if line["line"]["dash"] == "dash"]
    assert [line["y"] for line in dashed] == [[p.AL for p in cold]]
    assert dashed[0]["line"]["color"] == Book(sample.full()).colour("suffix")


def test_bands_are_the_intervals(figures: dict[str, Any]) -> None:
    bands = [t for t in figures["acceptance"]["panels"][0]["variants"][0]["data"] if t.get("fill") == "toself"]
    curve = measured.acceptance().results[0].curve
    low, high = ([p.AL_ci95[i] for p in curve if p.AL_ci95] for i in (0, 1))
    assert bands[0]["y"] == [*low, *reversed(high)]


def test_the_selector_offers_categories_then_contexts_in_order(figures: dict[str, Any]) -> None:
    figure = acceptance_figure(Book(sample.full()))
    assert figure is not None
    labels = [choice.label.replace("\u00a0", " ") for choice in figure.choices]
    assert labels == [
        "all text",
        "coding (4 answers)",
        "writing (4 answers)",
        "summarization (4 answers)",
        "context 0..256 tokens (9 answers)",
        "context 256..512 tokens (5 answers)",
    ]
    assert figure.choices[-1].note.startswith("No step of external was seen here")
    assert len(traces(figures, "acceptance", variant=5)) == 2


def test_contexts_are_sorted_by_length_and_a_category_may_be_called_context() -> None:
    found = sample.full()
    assert found.acceptance is not None
    domain = found.acceptance.results[0].domains["coding"]
    names = ["context 16384..32768", "context x", "context 512..1024", "context 0..256"]
    result = replace(found.acceptance.results[0], domains=dict.fromkeys(names, domain))
    book = Book(replace(found, acceptance=replace(found.acceptance, results=[result])))
    figure = acceptance_figure(book)
    assert figure is not None
    assert [choice.label.partition(" (")[0] for choice in figure.choices[1:]] == [
        "context x",
        "context 0..256 tokens",
        "context 512..1024 tokens",
        "context 16384..32768 tokens",
    ]


def test_break_even_panels_hold_AL_and_cost_of_every_candidate(figures: dict[str, Any]) -> None:
    for i, point in enumerate(sample.decision().points):
        for k, name in enumerate(measured.KINDS):
            own = sorted((c for c in point.candidates if c.drafter == name), key=lambda c: c.D)
            cost, gain = traces(figures, "breakeven", panel=k, variant=i)
            assert cost["y"] == [1.0, *(c.break_even_AL for c in own)]
            assert gain["y"] == [1.0, *(c.AL for c in own)]
            assert cost["line"]["dash"] == "dash"


@given(
    st.lists(st.tuples(st.floats(0.5, 20), st.floats(0.5, 20)), min_size=2, max_size=8),
)
def test_gain_is_filled_exactly_where_yield_is_above_cost(pairs: list[tuple[float, float]]) -> None:
    upper, lower = [a for a, _ in pairs], [b for _, b in pairs]
    (gain_x, gain_y), (loss_x, loss_y) = between(list(range(len(pairs))), upper, lower)
    for xs, ys, sign in ((gain_x, gain_y, 1), (loss_x, loss_y, -1)):
        for k in range(0, len(xs), 5):
            a, b, c, d = (ys[k + j] for j in range(4))
            assert a is not None
            assert b is not None
            assert c is not None
            assert d is not None
            assert sign * (a - d) >= -1e-9
            assert sign * (b - c) >= -1e-9
    width = sum((xs[k + 1] or 0) - (xs[k] or 0) for xs in (gain_x, loss_x) for k in range(0, len(xs), 5))
    assert isclose(width, len(pairs) - 1, abs_tol=1e-9)


def test_heat_cells_are_speed_ups_and_the_choice_is_framed(figures: dict[str, Any]) -> None:
    points = sample.decision().points
    panels = figures["heat"]["panels"]
    assert len(panels) == len(measured.KINDS)
    for k, name in enumerate(measured.KINDS):
        trace = panels[k]["variants"][0]["data"][0]
        expected = [
            [next(c.speedup for c in p.candidates if (c.drafter, c.D) == (name, D)) for D in range(1, 9)]
            for p in points
        ]
        assert trace["z"] == expected
        assert trace["y"] == ["B = 1", "B = 4"]
    framed = [len(panel["variants"][0]["layout"]["shapes"]) for panel in panels]
    assert framed == [0, 1, 0]


def test_with_one_load_the_heat_map_has_drafters_down() -> None:
    figure = heat_figure(Book(sample.minimal()))
    assert figure is not None
    assert len(figure.panels) == 1
    assert figure.panels[0].variants[0]["data"][0]["y"] == ["ngram"]


def test_with_several_contexts_the_heat_map_has_loads_down_and_every_selector_all_loads() -> None:
    found = Book(sample.many_loads())
    heat, breakeven, front = heat_figure(found), breakeven_figure(found), frontier_figure(found)
    assert heat is not None
    assert breakeven is not None
    assert front is not None
    assert heat.panels[0].variants[0]["data"][0]["y"] == [f"B = {p.B}, S = {p.S}" for p in found.points]
    assert len(breakeven.choices) == len(breakeven.panels[0].variants) == 6
    assert len(front.choices) == len(front.panels[0].variants) == 2


def test_a_candidate_that_is_missing_is_blank_and_said() -> None:
    found = sample.full()
    point = found.decision.points[0]
    fewer = replace(point, candidates=[c for c in point.candidates if (c.drafter, c.D) != ("ngram", 3)])
    book = Book(replace(found, decision=replace(found.decision, points=[fewer, found.decision.points[1]])))
    figure = heat_figure(book)
    assert figure is not None
    assert figure.panels[0].variants[0]["data"][0]["z"][0][2] is None
    assert "Blank cells were not measured (ngram B = 1)." in "".join(str(part) for line in figure.lead for part in line)


def test_names_on_an_axis_are_text_to_plotly() -> None:
    found = sample.minimal()
    point = found.decision.points[0]
    odd = [replace(c, drafter="<b>x</b>") for c in point.candidates]
    book = Book(replace(found, decision=replace(found.decision, points=[replace(point, candidates=odd)])))
    figure = heat_figure(book)
    assert figure is not None
    assert figure.panels[0].variants[0]["data"][0]["y"] == ["&lt;b&gt;x&lt;/b&gt;"]


def test_frontier_marks_equal_the_record(figures: dict[str, Any]) -> None:
    record = sample.full().frontier
    assert record is not None
    drawn = {(x, y) for trace in traces(figures, "frontier") for x, y in zip(trace["x"], trace["y"], strict=True)}
    assert drawn == {(p.tokens_per_s_user, p.tokens_per_s) for p in record.points}
    line = figures["frontier"]["panels"][0]["variants"][0]["data"][0]
    assert len(line["x"]) == sum(p.frontier for p in record.points)


def test_the_layer_of_the_article_shifts_with_D(figures: dict[str, Any]) -> None:
    own = [p for p in measured.gemm_points() if p.n == 6144]
    lines = [t for t in traces(figures, "gemm") if "lines" in t["mode"]]
    for D, line in zip((0, 1, 3, 7, 15), lines, strict=True):
        assert line["x"] == [p.M / (1 + D) for p in own if p.M >= 1 + D]
        assert line["y"] == [p.flops_per_s * 1e-9 for p in own if p.M >= 1 + D]
    rings = [t for t in traces(figures, "gemm") if t["mode"] == "markers"]
    # 80 % of the peak is reached at M = 64.
    assert [ring["x"] for ring in rings] == [[64.0], [32.0], [16.0], [8.0], [4.0]]
    assert (
        "B = 64 at D = 0, B = 32 at D = 1, B = 16 at D = 3, B = 8 at D = 7, B = 4 at D = 15"
        in Page(render(sample.full())).text
    )


def test_the_models_own_layers_have_a_panel_of_their_own(figures: dict[str, Any]) -> None:
    lines = traces(figures, "gemm", panel=1)
    own = [p for p in measured.gemm_points() if p.n != 6144]
    assert [y for line in lines for y in line["y"]] == [p.flops_per_s * 1e-9 for p in own]


def test_without_the_articles_layer_the_page_says_so() -> None:
    found = sample.full()
    timing = replace(timed(found), gemm=[p for p in measured.gemm_points() if p.n != 6144])
    figure = gemm_figure(Book(replace(found, timing=timing)))
    assert figure is not None
    assert [panel.id for panel in figure.panels] == ["gemm-layers"]
    assert any("was not timed" in str(line[0]) for line in figure.lead)


def test_attention_is_time_over_rows_by_context(figures: dict[str, Any]) -> None:
    lines = traces(figures, "attention")
    for S, line in zip((200, 1024, 4096), lines, strict=True):
        own = [p for p in measured.attention_points() if p.S == S]
        assert line["x"] == [p.rows for p in own]
        assert line["y"] == [p.t_s * 1e6 for p in own]
        assert all(isclose(e, (p.p90 - p.t_s) * 1e6) for e, p in zip(line["error_y"]["array"], own, strict=True))


def test_shares_stack_to_a_whole_pass_at_each_load(figures: dict[str, Any]) -> None:
    for variant in (0, 1):
        bars = traces(figures, "shares", variant=variant)
        assert len(bars) == 4
        for heights in zip(*(bar["y"] for bar in bars), strict=True):
            assert isclose(sum(heights), 100)


def test_a_drafter_has_one_colour_and_one_marker_in_all_figures(figures: dict[str, Any]) -> None:
    book = Book(sample.full())
    for k, name in enumerate(measured.KINDS):
        looks = {(book.colour(name), book.symbol(name))}
        looks.add((traces(figures, "breakeven", panel=k)[1]["marker"]["color"], book.symbol(name)))
        looks |= {
            (t["marker"]["color"], t["marker"]["symbol"])
            for t in traces(figures, "frontier")
            if t["customdata"][0][0].startswith(f"{name},")
        }
        assert len(looks) == 1


def test_nine_drafters_still_look_different() -> None:
    point = sample.decision().points[0]
    many = [replace(point.candidates[0], drafter=f"d{k}") for k in range(16)]
    record = replace(
        sample.decision(), points=[replace(point, candidates=many, best=None)], schedule=[], confirmation=None
    )
    book = Book(replace(sample.minimal(), decision=record))
    assert len({(book.colour(c.drafter), book.symbol(c.drafter)) for c in many}) == 16


def test_hover_ends_with_file_and_field(figures: dict[str, Any]) -> None:
    for figure in figures.values():
        for panel in figure["panels"]:
            for variant in panel["variants"]:
                for trace in variant["data"]:
                    for lines in trace.get("customdata", []):
                        flat = lines if lines and isinstance(lines[0], list) else [lines]
                        assert all(
                            said[-1].startswith("records/") or said[-1].endswith("by definition")
                            for said in flat
                            if said
                        )


def test_figures_are_absent_where_the_records_are() -> None:
    book = Book(sample.minimal())
    for made in (acceptance_figure, frontier_figure, gemm_figure, attention_figure, shares_figure):
        assert made(book) is None
    assert breakeven_figure(Book(sample.bare())) is None
    assert heat_figure(Book(sample.bare())) is None


def test_a_drafter_without_a_curve_is_named(figures: dict[str, Any]) -> None:
    found = sample.full()
    assert found.acceptance is not None
    empty = replace(found.acceptance.results[0], curve=[], domains={})
    record = replace(found.acceptance, results=[empty, *found.acceptance.results[1:]])
    assert "No curve was measured for ngram" in Page(render(replace(found, acceptance=record))).text
