"""litebert report: run folders in; one HTML file that opens offline out."""

from litebert.report.page import Report, write_report
from litebert.report.run import RunData, read_run

__all__ = ["Report", "RunData", "read_run", "write_report"]
