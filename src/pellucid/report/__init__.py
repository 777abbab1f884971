"""Reports: one HTML file on what a model does with a text, and the folder of results behind it."""

from pellucid.report.build import report
from pellucid.report.section import Section, Subject, all_sections
from pellucid.report.sheet import Sheet

__all__ = ["Section", "Sheet", "Subject", "all_sections", "report"]
