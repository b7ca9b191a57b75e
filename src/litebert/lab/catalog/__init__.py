"""The studies that come with litebert: tables and figures of the ALBERT paper (Lan et al., ICLR
2020), and questions that it left open.

At the scale `paper` a study is the paper's own recipe. At `gpu-hour` and `cpu` widths are smaller
and every row is trained on the same few tokens: trends can be compared, numbers cannot.
"""

from litebert.checks import check_known
from litebert.lab.catalog.beyond import BEYOND
from litebert.lab.catalog.counts import COUNTS
from litebert.lab.catalog.paper import PAPER
from litebert.lab.study import Study

STUDIES: dict[str, Study] = {study.name: study for study in (*COUNTS, *PAPER, *BEYOND)}


def find_study(name: str) -> Study:
    """The study of that name; ConfigError names the known ones."""
    check_known("study", name, STUDIES)
    return STUDIES[name]
