"""The picture of many connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies.connections.picture import draw


@pytest.mark.slow
def test_every_contender_has_a_line(tmp_path: Path) -> None:
    size = {"flows": 5, "span_s": 4.0, "cpu_s": {"ovs-vswitchd": 1.0}, "switch_rss_bytes": 1e7}
    sizes = [{"connections": connections, **size} for connections in (1000, 10000)]
    rows = [{"contender": name, "sizes": sizes} for name in ("balance-tcp", "adaptive, split")]
    paths = draw({"rows": rows}, tmp_path)
    assert [path.name for path in paths] == ["connections.png", "connections.svg"]
    text = paths[1].read_text()
    assert text.count("adaptive, split") >= 1 and text.count("balance-tcp") >= 1
