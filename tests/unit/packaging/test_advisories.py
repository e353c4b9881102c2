"""Versions with known vulnerabilities fail `make lint`."""

from __future__ import annotations

import json

import pytest

from tests import advisories

LINES = advisories.LIST.read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "version", "bad"),
    [
        ("eventlet", "0.40.2", True),
        ("eventlet", "0.40.3", False),
        ("pyyaml", "5.3.1", True),
        ("ansible-core", "2.14.4", False),
        ("ansible-core", "2.15.8", True),
        # Accepted, with the reason in the list.
        ("ryu", "4.34", False),
    ],
)
def test_a_version_with_a_known_vulnerability_is_found(name: str, version: str, bad: bool) -> None:
    found = list(advisories.known_bad({name: {version}}, LINES))
    assert [f"{name} {version}: CVE-" in one for one in found] == [True] * bad


def test_a_requirement_without_a_lower_limit_takes_every_version() -> None:
    name, versions = advisories.lowest("PyOpenSSL < 99")
    assert list(advisories.known_bad({name: versions}, LINES))


def test_the_list_is_about_packages_that_are_named() -> None:
    listed = {line.split()[0] for line in LINES if not line.startswith("#")}
    assert listed <= advisories.named().keys()
    assert {"os-ken", "prometheus-client", "setuptools", "ryu"} <= advisories.named().keys()


def test_what_pip_audit_finds_is_reported_and_a_silent_service_finds_nothing() -> None:
    """Where its service does not know a package, pip-audit ends with "No known vulnerabilities found"."""
    vulnerable = [{"id": "CVE-1", "fix_versions": ["2"]}]
    answer = {
        "dependencies": [
            {"name": "good", "version": "1", "vulns": []},
            {"name": "bad", "version": "1", "vulns": vulnerable},
            {"name": "ryu", "version": "4.34", "vulns": vulnerable},
            {"name": "unknown", "skip_reason": "not found"},
        ]
    }
    bad, unknown = advisories.audited(json.dumps(answer), LINES)
    assert (bad, unknown) == (["bad 1: CVE-1 -> ['2']"], ["unknown"])
