"""Write runs as JUnit XML: a suite per environment, a test case per run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

#: Outcome -> element of the test case; other outcomes than `ok` are failures.
_ELEMENTS = {"infrastructure": "error", "skipped": "skipped"}
#: Characters that XML 1.0 cannot hold.
_INVALID = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(runs: pd.DataFrame, path: Path) -> None:
    """Write runs as test cases: time, and failure, error or skip with the error of the run."""
    root = ElementTree.Element("testsuites", name="benchkit")
    for environment, group in runs.groupby("environment", sort=True):
        suite = ElementTree.SubElement(root, "testsuite", name=_text(environment))
        elements = Counter(map(_element, group["outcome"]))
        suite.set("tests", str(len(group)))
        for element, plural in (("failure", "failures"), ("error", "errors"), ("skipped",) * 2):
            suite.set(plural, str(elements[element]))
        suite.set("time", f"{group['duration'].sum():.6f}")
        suite.set("timestamp", group["started"].min().strftime("%Y-%m-%dT%H:%M:%S"))
        for row in group.sort_values("started").to_dict("records"):
            case = ElementTree.SubElement(suite, "testcase", name=_text(row["workload"]))
            case.set("classname", _text(row["category"]))
            if pd.notna(row["duration"]):
                case.set("time", f"{row['duration']:.6f}")
            properties = ElementTree.SubElement(case, "properties")
            for name in ("id", "host", "cluster", "dask", "distributed"):
                if pd.notna(row[name]):
                    value = _text(row[name])
                    ElementTree.SubElement(properties, "property", name=name, value=value)
            if element := _element(row["outcome"]):
                error = row["error"] if pd.notna(row["error"]) else row["outcome"]
                problem = ElementTree.SubElement(case, element, message=_text(error))
                problem.set("type", row["outcome"])
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _element(outcome: str) -> str:
    """Return the element of a test case with this outcome; empty if it passed."""
    return "" if outcome == "ok" else _ELEMENTS.get(outcome, "failure")


def _text(value: object) -> str:
    return _INVALID.sub("\N{REPLACEMENT CHARACTER}", str(value))
