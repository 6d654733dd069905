"""Reading pages of results as tests need it."""

from html.parser import HTMLParser

WITHOUT_END = {"meta", "img", "br", "input"}


class Page(HTMLParser):
    """The tags of a page, its tables as rows of texts, its headings, its other text and the marks in its tables' cells.

    Every element must be closed in turn.
    """

    def __init__(self, text):
        super().__init__()
        self.source, self.tables, self.headings, self.text, self.marked = text, [], [], "", {}
        self.tags, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open += [] if tag in WITHOUT_END else [tag]
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
        elif tag in {"h2", "h3"}:
            self.headings.append("")

    def handle_endtag(self, tag):
        assert tag in WITHOUT_END or self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in {"h2", "h3"}:
            self.headings[-1] += data
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data
            if self._open[-1] in {"strong", "u"}:
                self.marked.setdefault(self._open[-1], []).append((len(self.tables) - 1, data))
        elif "style" not in self._open:
            self.text += data


def table_with(page, heading):
    """The only table with that column."""
    (found,) = [table for table in page.tables if any(heading in row for row in table[:2])]
    return {row[0]: row[1:] for row in found}
