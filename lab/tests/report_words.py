"""Reports as plain text: what a person reads of them."""

from __future__ import annotations

import html
import re

from kilter_lab import report
from kilter_lab.study import StudyData


def plain(text: str) -> str:
    """In single spaces."""
    return " ".join(text.split())


def words(page: str) -> str:
    """The text of a page, without its style and tags."""
    body = page[page.index("<body>") :]
    return plain(html.unescape(re.sub(r"<[^>]*>", " ", body)))


def markdown(data: StudyData) -> str:
    """The Markdown without its emphasis."""
    return plain(report.to_markdown(data).replace("**", "").replace("\\", ""))
