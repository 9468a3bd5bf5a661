"""The page as a file: well-formed, alone, inert, and the same each time."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.core.schema import DomainCurve
from codraft.report import Study, render, write_report

from tests.report import sample
from tests.report.reading import Page

STUDIES = {"full": sample.full(), "minimal": sample.minimal(), "bare": sample.bare(), "many loads": sample.many_loads()}
# Everything a browser may fetch by itself, or on a click.
LOADING = ("src", "href", "srcset", "action", "data", "poster", "background", "xlink:href", "formaction")
EVIL = "<script>alert(1)</script>"
PARTS = [
    "verdict",
    "advice",
    "schedule",
    "confirmation",
    "frontier",
    "acceptance",
    "breakeven",
    "heat",
    "machine",
    "guidelines",
    "mechanisms",
    "candidates",
    "provenance",
    "asked",
    "words",
]


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest) -> Study:
    return STUDIES[request.param]


@pytest.fixture(scope="module")
def full() -> Page:
    return Page(render(STUDIES["full"]))


@pytest.fixture(scope="module")
def minimal() -> Page:
    return Page(render(STUDIES["minimal"]))


def own_text(page: str) -> str:
    """The page without Plotly's bundle, which names addresses in its comments and map styles."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return page.replace(get_plotlyjs(), "")


def test_every_page_is_well_formed_with_all_parts_and_no_id_twice(study: Study) -> None:
    page = Page(render(study))
    ids = page.ids()
    assert len(ids) == len(set(ids))
    expected = [part for part in PARTS if part != "advice" or study.decision.points]
    assert [part for part in ids if part in PARTS] == expected


def test_links_of_a_page_lead_to_parts_of_itself(study: Study) -> None:
    page = Page(render(study))
    ids = set(page.ids())
    assert {str(a["href"]) for a in page.of("a")} <= {f"#{part}" for part in ids}


def test_nothing_is_loaded_from_anywhere(study: Study) -> None:
    source = render(study)
    page = Page(source)
    for tag, attrs in page.elements:
        for name in LOADING:
            assert (attrs.get(name) or "#").startswith("#"), (tag, name)
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
    assert not re.search(r"https?://|@import|url\(", own_text(source))
    policy = next(str(m["content"]) for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


def test_plotly_is_inlined_once_and_the_page_stays_small(study: Study) -> None:
    source = render(study)
    assert source.count("plotly.js v") == (1 if "<figure" in source else 0)
    assert len(source.encode()) < 6_000_000


def test_a_page_without_figures_carries_no_plotly() -> None:
    source = render(sample.bare())
    assert "<figure" not in source
    assert len(source) < 100_000


def test_equal_records_give_equal_bytes(study: Study) -> None:
    assert render(study) == render(study)


def test_the_page_says_its_language_and_fits_a_phone(full: Page) -> None:
    assert full.of("html")[0]["lang"] == "en"
    assert any(m.get("name") == "viewport" and "width=device-width" in str(m.get("content")) for m in full.of("meta"))
    assert all(attrs.get("aria-label") for attrs in full.of("figure"))
    assert len(full.of("caption")) == len(full.of("table"))
    assert len(full.of("h1")) == 1


def test_tables_hold_the_data_without_script_and_the_page_says_so(full: Page) -> None:
    assert "JavaScript is off" in full.text
    assert len(full.of("noscript")) == 1
    assert len([d for d in full.of("details") if d.get("class") == "data"]) == len(full.of("figure")) == 7


def test_hostile_names_stay_text() -> None:
    found = sample.full()
    assert found.acceptance is not None
    first = found.acceptance.results[0]
    domains = {f"</script>{EVIL}&\"'": first.domains["coding"], **first.domains}
    hostile = replace(
        found,
        target=EVIL,
        asked={EVIL: [EVIL, '"><img src=x onerror=alert(1)>']},
        acceptance=replace(found.acceptance, target=EVIL, results=[replace(first, domains=domains)]),
    )
    page, plain = Page(render(hostile)), Page(render(found))
    assert len(page.scripts) == len(plain.scripts)
    assert page.figures().keys() == plain.figures().keys()
    assert not page.of("img")
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]
    assert EVIL in page.text
    assert EVIL not in own_text(render(hostile))


def test_json_in_the_page_cannot_end_its_element() -> None:
    found = sample.full()
    assert found.acceptance is not None
    first = found.acceptance.results[0]
    named = replace(first, domains={"</script><!--\u2028": DomainCurve(num_prompts=1, curve=first.curve)})
    page = Page(render(replace(found, acceptance=replace(found.acceptance, results=[named]))))
    hover = page.figures()["acceptance"]["panels"][0]["variants"][1]["data"][-1]["customdata"][0][-1]
    assert "</script><!--" in hover


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path: Path) -> None:
    write_report(replace(sample.minimal(), target="half \ud800"), tmp_path / "report.html")
    assert "half ?" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_write_report_writes_what_render_gives(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write_report(sample.minimal(), path)
    assert path.read_text(encoding="utf-8") == render(sample.minimal())
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="cannot write"):
        write_report(sample.bare(), tmp_path / "file" / "report.html")


def test_numbers_say_which_record_and_field_they_come_from(full: Page) -> None:
    titles = full.titles()
    assert any(t.startswith("records/timing.json points[0].t_verif_s; 21 samples") for t in titles)
    assert any("records/decision.json points[0].candidates[0].speedup; 600 steps of 12 conv" in t for t in titles)
    assert any("10th to 90th percentile" in t for t in titles)
    rows = re.findall(r"<tr[ >].*?</tr>", render(sample.full()), re.DOTALL)
    assert len(rows) > 300
    for row in rows:
        for cell in re.findall(r'<td[^>]*class="num[^>]*>', row):
            assert "title=" in cell or "none" in cell or row.startswith("<tr title=") or 'title="records/' in row, row


def test_what_was_not_measured_is_said_and_not_drawn(minimal: Page) -> None:
    assert set(minimal.figures()) == {"breakeven", "heat"}
    for sentence in (
        "No frontier was recorded.",
        "No acceptance curve was recorded",
        "Linear layers, attention and the shares of a pass were not timed",
        "It was not confirmed by generating.",
        "No table of mechanisms was recorded.",
        "there was no study.toml",
        "Not in this study: timing, acceptance, frontier.",
    ):
        assert sentence in minimal.text


def test_provenance_and_question_are_on_the_page(full: Page) -> None:
    for text in ("b3ec2c0", "2026-10-01T12:00:00", "transformers: 5.19.0", "codraft tune demo", "inputs: aaaa"):
        assert text in full.text
    for name in ("decision", "timing", "acceptance", "frontier"):
        assert f"records/{name}.json" in full.text
    assert "ngram,n_min=2,n_max=4,occurrence=latest" in full.text
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8" in full.text
