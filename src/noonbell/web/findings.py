"""What the doctor finds, in the language of the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from noonbell.service.doctor import Finding
from noonbell.version import __version__
from noonbell.web.words import Words


@dataclass(frozen=True, slots=True)
class Said:
    mark: str
    check: str
    says: str
    fix: str


def said(finding: Finding, words: Words) -> Said:
    """A finding without a code has no other words than its own."""
    check = f"doctor.check.{finding.check.replace(' ', '_')}"
    key = f"doctor.{finding.code}"
    return Said(
        mark=str(finding.mark),
        check=words(check) if words.has(check) else finding.check,
        says=words(key, **finding.facts) if words.has(key) else finding.says,
        fix=words(f"{key}.fix", **finding.facts) if words.has(f"{key}.fix") else finding.fix,
    )


def report(findings: Iterable[Finding], store: str) -> str:
    """For whoever is asked for help: as the command line says it, in English, with the versions."""
    lines = [f"Noonbell {__version__}, store {store}"]
    for finding in findings:
        lines.append(f"[{finding.mark}] {finding.check}: {finding.says}")
        if finding.fix:
            lines.append(f"    -> {finding.fix}")
    return "\n".join(lines)
