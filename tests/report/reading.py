"""A page as a browser's parser takes it apart: elements, attributes, visible text, and the figures' data."""

import json
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"meta", "link", "br", "img", "input", "hr", "path", "rect", "line", "circle"})
Attributes = dict[str, str | None]


class Page(HTMLParser):
    """Refuses a page whose tags do not balance."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, Attributes]] = []
        self.scripts: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice in <{tag}>: {attrs}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID, f"</{tag}>"
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-1:]} at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append((self.open[-1], data))

    @property
    def text(self) -> str:
        """All that a reader sees, with plain spaces."""
        return " ".join("".join(data for _, data in self.texts).replace("\u00a0", " ").split())

    def of(self, tag: str) -> list[Attributes]:
        """Attributes of every element of a kind."""
        return [attrs for name, attrs in self.elements if name == tag]

    def ids(self) -> list[str]:
        """All ids, in order."""
        return [found for _, attrs in self.elements if (found := attrs.get("id"))]

    def titles(self) -> list[str]:
        """What hovering shows."""
        return [found for _, attrs in self.elements if (found := attrs.get("title"))]

    def figures(self) -> dict[str, Any]:
        """The data of the charts; empty where the page has none."""
        for (tag, attrs), body in zip(
            [item for item in self.elements if item[0] == "script"], self.scripts, strict=True
        ):
            if attrs.get("id") == "figures":
                assert tag == "script"
                found: dict[str, Any] = json.loads(body)
                return found
        return {}
