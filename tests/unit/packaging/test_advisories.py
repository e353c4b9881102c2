"""Versions with known vulnerabilities fail `make lint`."""

from __future__ import annotations

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
    assert [f"{name} {version} has CVE-" in one for one in found] == [True] * bad


def test_the_list_is_about_packages_that_are_named() -> None:
    listed = {line.split()[0] for line in LINES if not line.startswith("#")}
    assert listed <= advisories.named().keys()
    assert {"os-ken", "prometheus-client", "setuptools", "ryu"} <= advisories.named().keys()
