"""A check as JUnit XML: one test case per check, one failure per alarm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from neurotest.errors import command
from neurotest.files import write_bytes

if TYPE_CHECKING:
    from neurotest.check import CheckResult

# What XML 1.0 has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _text(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def write_junit(path: Path, result: CheckResult) -> None:
    skipped = sum(one.skipped for one in result.examined)
    failing = {finding.check for finding in result.findings if finding.level == "alarm"}
    counts = {"tests": len(result.examined), "failures": len(failing), "errors": 0, "skipped": skipped}
    attributes = {name: str(count) for name, count in counts.items()} | {"time": f"{result.seconds:.3f}"}
    suite = ElementTree.Element("testsuite", {"name": _text(command("check", result.target)), **attributes})
    for one in result.examined:
        about = {"classname": "neurotest.check", "name": one.name, "time": f"{one.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", about)
        if one.skipped:
            ElementTree.SubElement(case, "skipped", {"message": _text(one.summary)})
        alarms = [finding for finding in one.findings if finding.level == "alarm"]
        if alarms:  # readers expect one failure per case
            lines = [f"{alarm.sentence}\n{alarm.advice}\n{alarm.deeper}".strip() for alarm in alarms]
            failure = ElementTree.SubElement(case, "failure", {"message": _text(alarms[0].sentence), "type": "alarm"})
            failure.text = _text("\n\n".join(lines))
        ElementTree.SubElement(case, "system-out").text = _text(one.summary)
    suites = ElementTree.Element("testsuites", attributes)
    suites.append(suite)
    write_bytes(path, ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True))
