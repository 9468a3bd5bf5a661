"""Records to one self-contained HTML page. Read `page.py` first, then `verdict.py`.

    Study -> sections of blocks (prose, tables, figures; `blocks.py`) -> templates/page.html -> one string

Every number travels as a `Num`: its text, and the record field it comes from. Colours are names here and hex codes in
`templates/report.css` alone, so that a chart can change with the reader's light or dark scheme.
"""

from codraft.report.page import render, write_report
from codraft.report.study import Study

__all__ = ["Study", "render", "write_report"]
