"""What dashboards say of a known story, evaluated by a real Prometheus, against what happened."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from policies.model import Reason
from tests import dashboard_story
from tests.unit.dashboards import recorded, shown, story
from tests.unit.dashboards.dashboards import ALL, BY_NAME, Dashboard
from tests.unit.dashboards.exported import EXPORTED, TARGET_LABELS
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.shown import Cell, legend
from tests.unit.dashboards.story import (
    DEAD,
    FLEET_BEGIN_S,
    FLEET_S,
    FULL,
    HOSTS,
    HV1,
    HV2,
    HV2_STANDBY,
    JOB,
    LINKLESS,
    MISCONFIGURED,
    NAMES,
    PAIR,
    SCRAPE_S,
    Facts,
    Moment,
)
from tests.unit.dashboards.viewing import Look, Panel, numbers

# Before anything was recorded.
NOTHING_S = story.BEGIN_S - 24 * story.HOUR_S
UNKNOWN = "not known (grey)"
HERE = (HV1, "br0")
ONE = dashboard_story.CHOSEN
OTHER = {"job": PAIR, "instance": HV2, "bridge": "br0"}
LABORATORY = {"job": JOB, "instance": HV1, "bridge": "br1"}
# What the story gives no cause for: no frame is lost. test_path_faults.py has the other one.
NO_CAUSE = {("bridge", name) for name in ("Dropped frames", "Lost between uplinks", "Probes")}
NOT_IN_THE_STORY = {
    "ovslbt_uplink_path_fault",
    "ovslbt_path_rounds_total",
    "ovslbt_path_frames_total",
}
# Marks closer than this are one, as the annotations' step says.
MARKS_APART_MS = 1000
LATEST = 10
MOST_LINES = 10
# In place of a host, where a row is about several.
OF_ALL = {"all", "every job"}
# What stands where a value would.
NOTHING_SAID = {"", "-", "none", "not known", "No data"}
# When panels are asked whether they have data: each has cause for some at one of these.
TELLING = ("full", "moved", "uplink still down", "drained", "no answer", "mended", "bridge gone")

each_moment = pytest.mark.parametrize("name", NAMES)
each_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=str)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with dashboard_story.told(tmp_path_factory.mktemp("story")) as answering:
        yield answering


def moment_of(name: str) -> Moment:
    (found,) = [moment for moment in story.played().moments if moment.name == name]
    return found


def look(prometheus: Prometheus, moment: Moment, name: str, **chosen: str) -> Look:
    chosen = chosen or (ONE if name == "bridge" else {})
    return Look(prometheus, BY_NAME[name], moment.at_s, moment.range_s, chosen)


def short(instance: str) -> str:
    """A host's name without the port of its service."""
    return instance.partition(":")[0]


# ---- the story itself ------------------------------------------------------------------


@pytest.mark.slow
def test_series_are_those_that_the_service_exports() -> None:
    for recording in (story.played(), story.fleet()):
        found = {n: labels for n, labels in recording.labels.items() if n.startswith("ovslbt_")}
        assert {name: labels for name, labels in EXPORTED.items() if name in found} == found
    scraped = story.played().labels
    assert EXPORTED.keys() - NOT_IN_THE_STORY <= scraped.keys()
    assert all(scraped[name] == TARGET_LABELS for name in scraped.keys() - EXPORTED.keys())


def test_is_about_everything_that_dashboards_are_for() -> None:
    recording = story.played()
    assert tuple(moment.name for moment in recording.moments) == NAMES
    reasons = Counter(move.reason for move in recording.moves)
    together = Counter((move.at_s, move.reason) for move in recording.moves)
    assert reasons.keys() >= {"threshold", "rebalance", "manual", "pin", "drain"}
    assert max(n for (_, why), n in together.items() if why == Reason.REBALANCE) >= 3
    assert reasons["failover"] >= 3
    assert reasons["failback"] >= reasons["failover"]
    assert moment_of("uplink down").facts.down == {(*HERE, "eth2")}
    assert moment_of("drained").facts.drained == {(*HERE, "eth4")}
    assert not any(moment_of("all dead").facts.services.values())
    assert (HV1, "br1") not in moment_of("bridge gone").facts.answers


# ---- the numbers at the top ------------------------------------------------------------


def alarming(count: int) -> str:
    return f"{count} ({'red' if count else 'green'})"


# A cell without a value.
NOTHING = "- (grey)"


def found_or_unknown(count: int, facts: Facts) -> str:
    """What is wrong counts; that nothing is wrong is known only while all bridges are heard of."""
    return alarming(count) if count or facts.is_all_known else UNKNOWN


def of_uplinks(count: int, facts: Facts) -> str:
    """None is known to be in order either while a switch does not answer."""
    if not count and not all(facts.answers.values()):
        return UNKNOWN
    return found_or_unknown(count, facts)


def if_any(count: int, facts: Facts) -> str:
    if not any(facts.services.values()):
        return UNKNOWN
    return f"{count} ({'blue' if count else 'red'})"


def observing(facts: Facts) -> str:
    """A bridge whose service is down may observe, too."""
    count = [mode for *_, mode in facts.policies.values()].count("observe")
    return f"{count} (blue)" if count or facts.is_all_known else UNKNOWN


def in_range(count: int, moment: Moment, colour: str, none: str) -> str:
    """A count of what happened in the time shown; nothing is known if no service ran in it."""
    if moment.range_s < story.HOUR_S:
        return UNKNOWN
    return f"{count} ({colour if count else none})"


def planned(moment: Moment) -> int:
    """What was refused had been wanted, too."""
    return moment.facts.moved(moment.range_s) + moment.facts.refusals(moment.range_s)


def alarming_about(name: str) -> set[str]:
    """The services that an alert of severity warning or critical fires about, in a step of the story."""
    return {
        service
        for since, until, *services in (
            ("uplink still down", "uplink still down", HV1),
            ("no answer", "no answer", HV2),
            ("still a bad value", "still a bad value", HV1),
            # A part of the service fails, which is heard of for a quarter of an hour; meanwhile, it dies.
            ("mended", "nobody leads", HV1),
            # The alert judges the mean of five minutes.
            ("all dead, 5 minutes shown", "nobody leads", HV2, HV2_STANDBY),
        )
        if NAMES.index(since) <= NAMES.index(name) <= NAMES.index(until)
        for service in services
    }


def wrong(moment: Moment) -> str:
    """Each service with which something is wrong, and each job that nobody leads."""
    facts = moment.facts
    found = {service for service, runs in facts.services.items() if not runs}
    found |= {service for (service, _), answers in facts.answers.items() if not answers}
    found |= {service for service, *_ in facts.down | facts.unrelieved}
    found |= {service for (service, _), count in facts.bad_values.items() if count}
    found |= alarming_about(moment.name)
    leaderless = facts.services[HV2] and HV2 not in facts.leading
    return alarming(len(found) + leaderless)


def of_here(told: Callable[[Moment], str]) -> Callable[[Moment], str]:
    """Nothing is known of a bridge whose service does not run."""
    return lambda moment: told(moment) if moment.facts.services[HV1] else UNKNOWN


def busiest(moment: Moment) -> str:
    loads = moment.facts.loads[HERE]
    uplink = max(loads, key=lambda name: loads[name])
    ratio = loads[uplink]
    colour = "red" if ratio >= 0.95 else "orange" if ratio >= 0.75 else "green"
    return f"{uplink} {100 * ratio:.0f}% ({colour})"


Truth = Callable[[Moment], str]
# What each tile of each dashboard's first screen has to say, from what happened alone.
TRUTHS: dict[tuple[str, str], Truth] = {
    ("fleet", "Services down"): lambda m: alarming(list(m.facts.services.values()).count(False)),
    ("fleet", "Bridges not connected"): lambda m: found_or_unknown(
        list(m.facts.answers.values()).count(False), m.facts
    ),
    ("fleet", "Uplinks down"): lambda m: of_uplinks(len(m.facts.down), m.facts),
    ("fleet", "Unrelieved uplinks"): lambda m: of_uplinks(len(m.facts.unrelieved), m.facts),
    ("fleet", "Configuration errors"): lambda m: found_or_unknown(
        sum(m.facts.bad_values.values()), m.facts
    ),
    ("bridge", "Switch"): lambda m: (
        "connected (green)" if m.facts.services[HV1] else "service down (red)"
    ),
    ("bridge", "Uplinks down"): of_here(lambda m: alarming(len(m.facts.down))),
    ("bridge", "Busiest uplink"): of_here(busiest),
    ("bridge", "Configuration errors"): of_here(lambda m: alarming(m.facts.bad_values[HERE])),
    ("bridge", "Policy"): lambda m: (
        ", ".join(m.facts.policies[HERE]) if m.facts.services[HV1] else "not known"
    ),
    ("decisions", "Planned"): lambda m: in_range(planned(m), m, "blue", "blue"),
    ("decisions", "Applied"): lambda m: in_range(m.facts.moved(m.range_s), m, "blue", "blue"),
    ("decisions", "Refused"): lambda m: in_range(m.facts.refusals(m.range_s), m, "orange", "green"),
    ("decisions", "Failovers"): lambda m: in_range(
        m.facts.moved_for(Reason.FAILOVER, m.range_s), m, "orange", "green"
    ),
    ("decisions", "Bridges in observe mode"): lambda m: observing(m.facts),
    ("decisions", "Wrong now"): wrong,
    ("controller", "Wrong now"): wrong,
    ("controller", "Services down"): lambda m: alarming(
        list(m.facts.services.values()).count(False)
    ),
    ("controller", "Deciding"): lambda m: if_any(len(m.facts.leading), m.facts),
    ("controller", "Bridges not connected"): lambda m: found_or_unknown(
        list(m.facts.answers.values()).count(False), m.facts
    ),
    ("controller", "Configuration errors"): lambda m: found_or_unknown(
        sum(m.facts.bad_values.values()), m.facts
    ),
}


@each_moment
@each_dashboard
def test_tiles_say_what_is_so(prometheus: Prometheus, dashboard: Dashboard, name: str) -> None:
    moment = moment_of(name)
    seen = look(prometheus, moment, dashboard.name)
    tiles = [panel for panel in seen.first_screen() if panel["type"] == "stat"]
    assert tiles
    said = {panel["title"]: ", ".join(map(str, seen.tiles(panel))) for panel in tiles}
    so = {title: told(moment) for (where, title), told in TRUTHS.items() if where == dashboard.name}
    assert said == so


@pytest.mark.parametrize(
    ("name", "chosen", "title", "says"),
    [
        ("no answer", OTHER, "Switch", "no answer"),
        ("no answer", OTHER, "Uplinks down", "not known"),
        ("no answer", OTHER, "Busiest uplink", "not known"),
        ("quiet", OTHER, "Policy", "load-based, lacp, enforce"),
        ("quiet", LABORATORY, "Policy", "originating-port, switch-independent, observe"),
        ("bridge gone", LABORATORY, "Switch", "not known"),
        ("bridge gone", LABORATORY, "Policy", "not known"),
        ("bridge gone", LABORATORY, "Uplinks down", "not known"),
        ("all dead", OTHER, "Switch", "service down"),
    ],
)
def test_tiles_of_other_bridges(
    prometheus: Prometheus, name: str, chosen: dict[str, str], title: str, says: str
) -> None:
    seen = look(prometheus, moment_of(name), "bridge", **chosen)
    (tile,) = seen.tiles(seen.panel(title))
    assert tile.text == says
    assert not tile.is_green


def test_what_is_wrong_is_counted_once_and_infos_are_not(prometheus: Prometheus) -> None:
    """An uplink that is down, and the alert about it, are of one service."""
    firing = prometheus.at('ALERTS{alertstate="firing"}', moment_of("uplink still down").at_s)
    assert [found.labels["alertname"] for found in firing] == ["OvsLbtUplinkDown"]
    said = {}
    for name in ("uplink still down", "undrained", "mended"):
        seen = look(prometheus, moment_of(name), "controller")
        said[name] = str(seen.tiles(seen.panel("Wrong now"))[0])
    # Of a severity below, and pending.
    alerts = prometheus.at("ALERTS", moment_of("undrained").at_s)
    assert {found.labels["severity"] for found in alerts} == {"info"}
    assert said == {"uplink still down": "1 (red)", "undrained": "0 (green)", "mended": "1 (red)"}


# ---- tables and bars -------------------------------------------------------------------


def texts(rows: list[dict[str, Cell]], *columns: str) -> list[tuple[str, ...]]:
    """These columns of each row, as they read."""
    return [tuple((row[c].text if c in row else "") or "-" for c in columns) for row in rows]


@each_moment
def test_every_bridge_that_there_is_has_one_row(prometheus: Prometheus, name: str) -> None:
    moment = moment_of(name)
    seen = look(prometheus, moment, "fleet")
    rows = seen.table(seen.panel("Bridges"))
    facts = moment.facts
    assert sorted(texts(rows, "Host", "Bridge")) == sorted(facts.answers)
    answering = [str(row["Switch"]) == "connected (green)" for row in rows]
    assert answering == sorted(answering), "a switch that does not answer comes first"
    for row in rows:
        where = row["Host"].text, row["Bridge"].text
        policy, _, mode = facts.policies[where]
        assert (row["Policy"].text, row["Mode"].text) == (policy, mode)
        answers = "connected (green)" if facts.answers[where] else "no answer (red)"
        assert str(row["Switch"]) == answers
        down, unrelieved = (
            sum(u[:2] == where for u in of) for of in (facts.down, facts.unrelieved)
        )
        # Of the uplinks of a switch that does not answer, only the past is known.
        known = facts.answers[where]
        assert str(row["Uplinks down"]) == (alarming(down) if known else NOTHING)
        assert str(row["Unrelieved"]) == (alarming(unrelieved) if known else NOTHING)
        in_service = facts.links[where].keys() - {d[2] for d in facts.drained if d[:2] == where}
        assert row["of"].text == str(len(in_service))
        assert str(row["Errors"]) == alarming(facts.bad_values[where])
        assert row["Moves"].text == str(facts.moved(moment.range_s, *where))


@each_moment
def test_every_uplink_has_one_row(prometheus: Prometheus, name: str) -> None:
    moment = moment_of(name)
    seen, facts = look(prometheus, moment, "bridge"), moment.facts
    rows = seen.table(seen.panel("Uplinks now"))
    links = facts.links.get(HERE, {})
    assert texts(rows, "Uplink") == [(uplink,) for uplink in sorted(links)]
    for row in rows:
        uplink = row["Uplink"].text
        assert str(row["Link"]) == ("up (green)" if links[uplink] else "down (red)")
        drained = (*HERE, uplink) in facts.drained
        assert row["Role"].text == ("drained" if drained else "active")
        if not links[uplink]:
            told = [row[title] for title in ("Sent", "Received", "Relief")]
            assert set(map(str, told)) == {NOTHING}
            continue
        sent = float(row["Sent"].text.removesuffix("%")) / 100
        assert sent == pytest.approx(facts.loads[HERE][uplink], abs=0.006)
        unrelieved = (*HERE, uplink) in facts.unrelieved
        assert row["Relief"].colour == ("red" if unrelieved else "green")


@each_moment
@each_dashboard
def test_the_last_moves_are_those_that_were_made_last(
    prometheus: Prometheus, dashboard: Dashboard, name: str
) -> None:
    moment = moment_of(name)
    seen = look(prometheus, moment, dashboard.name)
    places = () if dashboard.name == "bridge" else ("Host", "Bridge")
    columns = (*places, "VM port", "To", "Reason")
    rows = texts(seen.table(seen.panel("Last ten moves")), *columns)
    made = [
        (
            move.at_s,
            *((short(move.instance), move.bridge) if places else ()),
            *(move.port, move.uplink, move.reason),
        )
        for move in moment.facts.moves
        if (places or (move.instance, move.bridge) == HERE)
        and move.at_s > moment.at_s - moment.range_s
    ]
    assert len(rows) == min(LATEST, len(made))
    # Moves of one moment have no order, and one of them may be the eleventh.
    times_s = sorted((at_s for at_s, *_ in made), reverse=True)[:LATEST]
    candidates = {tuple(told) for at_s, *told in made if times_s and at_s >= times_s[-1]}
    assert set(rows) <= candidates
    by_time = {tuple(told): at_s for at_s, *told in made}
    shown_s = [by_time[row] for row in rows]
    assert shown_s == sorted(shown_s, reverse=True)


@each_moment
def test_refusals_are_told_of_how_many_that_were_planned(prometheus: Prometheus, name: str) -> None:
    moment = moment_of(name)
    seen, facts = look(prometheus, moment, "decisions"), moment.facts
    rows = texts(seen.table(seen.panel("Refusals")), "Refused", "of", "Reason", "Bridge", "Host")
    refused = 0 if moment.range_s < story.HOUR_S else facts.refusals(moment.range_s)
    planned = refused + facts.moved_for(Reason.MANUAL, moment.range_s, *HERE)
    told = (str(refused), str(planned), str(Reason.MANUAL), "br0", short(HV1))
    assert rows == ([told] if refused else [])


@each_moment
def test_every_service_has_one_row(prometheus: Prometheus, name: str) -> None:
    moment = moment_of(name)
    for dashboard in ("fleet", "controller"):
        seen = look(prometheus, moment, dashboard)
        rows = seen.table(seen.panel("Services"))
        said = {row["Host"].text: str(row["Scraped"]) for row in rows}
        assert len(rows) == len(said)
        assert said == {
            service: "up (green)" if up else "down (red)"
            for service, up in moment.facts.services.items()
        }


# Alerts at each moment: name, state, host, bridge and uplink. Where a moment is not named, as at
# the one before.
ALERTS: dict[str, set[tuple[str, ...]]] = {
    "quiet": set(),
    "uplink down": {("UplinkDown", "pending", HV1, "br0", "eth2")},
    "uplink still down": {("UplinkDown", "firing", HV1, "br0", "eth2")},
    "failed back": set(),
    "drained": {("RuleBroken", "pending", HV1, "br0", "-")},
    "undrained": {("Imbalance", "pending", HV1, "br0", "-")},
    "bad value": {
        ("Imbalance", "pending", HV1, "br0", "-"),
        ("ConfigurationError", "pending", HV1, "br0", "-"),
    },
    "no answer": {
        ("Imbalance", "pending", HV1, "br0", "-"),
        ("ConfigurationError", "pending", HV1, "br0", "-"),
        ("BridgeDisconnected", "firing", HV2, "br0", "-"),
    },
    "still a bad value": {
        ("Imbalance", "pending", HV1, "br0", "-"),
        ("ConfigurationError", "firing", HV1, "br0", "-"),
    },
    "mended": {
        ("Imbalance", "pending", HV1, "br0", "-"),
        ("Fault", "firing", HV1, "-", "-"),
    },
    "service dead": {("Fault", "firing", HV1, "-", "-")},
    "service still dead": {
        ("Fault", "firing", HV1, "-", "-"),
        ("ServiceDown", "firing", HV1, "-", "-"),
    },
    # Until the mean of five minutes tells of less.
    "all dead, 5 minutes shown": {
        ("Fault", "firing", HV1, "-", "-"),
        ("ServiceDown", "firing", HV1, "-", "-"),
        ("ServiceDown", "firing", HV2, "-", "-"),
        ("ServiceDown", "firing", HV2_STANDBY, "-", "-"),
    },
    "all back": {
        ("ServiceDown", "firing", HV1, "-", "-"),
        ("ServiceDown", "firing", HV2, "-", "-"),
        ("ServiceDown", "firing", HV2_STANDBY, "-", "-"),
    },
    # About a job, and so about all of its hosts.
    "nobody leads": {
        ("NoLeader", "pending", "All", "-", "-"),
        ("ServiceDown", "firing", HV1, "-", "-"),
        ("ServiceDown", "firing", HV2, "-", "-"),
        ("ServiceDown", "firing", HV2_STANDBY, "-", "-"),
    },
}


@each_moment
def test_alerts_are_those_that_wait_or_fire(prometheus: Prometheus, name: str) -> None:
    so: set[tuple[str, ...]] = set()
    for before in itertools.takewhile(lambda before: before != name, NAMES):
        so = ALERTS.get(before, so)
    so = {("OvsLbt" + alert, *where) for alert, *where in ALERTS.get(name, so)}
    # Services on one host differ by their port. Without a bridge, an alert is about all of them.
    told = [
        (alert, state, host, "All" if bridge == "-" else bridge, uplink)
        for alert, state, host, bridge, uplink in so
    ]
    seen = look(prometheus, moment_of(name), "fleet")
    rows = seen.table(seen.panel("Alerts"))
    found = texts(rows, "Alert", "State", "Host", "Bridge", "Uplink")
    assert sorted(found) == sorted(told)
    (labels,) = (
        [series.labels for series in found] for found in seen.answers(seen.panel("Alerts")).values()
    )
    for label in labels:
        of_service = label["bridge"] == "All"
        assert label["board"] == f"ovs-lbt-{'controller' if of_service else 'bridge'}"
    assert not any(cell.is_green for row in rows for cell in row.values())
    colours = {"firing": "red", "pending": "orange"}
    assert all(row["State"].colour == colours[row["State"].text] for row in rows)
    here = {
        (alert, state)
        for alert, state, host, bridge, _ in so
        if (host, bridge) in (HERE, (HV1, "-"))
    }
    of_bridge = look(prometheus, moment_of(name), "bridge")
    assert set(texts(of_bridge.table(of_bridge.panel("Alerts")), "Alert", "State")) == here


@each_moment
@each_dashboard
def test_every_cell_that_leads_somewhere_can_be_seen(
    prometheus: Prometheus, dashboard: Dashboard, name: str
) -> None:
    """Grafana makes a link of an empty cell, too."""
    seen = look(prometheus, moment_of(name), dashboard.name)
    for panel in (panel for panel in dashboard.asking if panel["type"] == "table"):
        for row in seen.table(panel):
            for title, cell in row.items():
                linked = "links" in shown.configured(panel, title)
                assert cell.text not in NOTHING_SAID or not linked, f"{panel['title']}: {title}"


def test_links_are_red_while_they_are_down(prometheus: Prometheus) -> None:
    moment = moment_of("failed back")
    seen = look(prometheus, moment, "bridge")
    states = {
        uplink: [str(state.cell) for state in row]
        for uplink, row in seen.timeline(seen.panel("Links")).items()
    }
    up, down = "up (green)", "down (red)"
    assert states == {"eth1": [up], "eth2": [up, down, up], "eth3": [up], "eth4": [up]}


def test_the_uplink_of_a_port_is_not_known_while_the_service_is_down(
    prometheus: Prometheus,
) -> None:
    """Grafana draws the last value of such a graph up to its end."""
    for name in ("mended", "service dead"):
        seen = look(prometheus, moment_of(name), "bridge")
        (found,) = seen.answers(seen.panel("Uplink of each VM port")).values()
        last_s = max(at_s for series in found for at_s, _ in series.points)
        assert moment_of(name).at_s - last_s <= 2 * SCRAPE_S
        at_last = [s.labels["uplink"] for s in found if s.points[-1][0] == last_s]
        assert len(at_last) == len({series.labels["port"] for series in found})
        is_known = moment_of(name).facts.services[HV1]
        assert ({"not known"} == set(at_last)) != is_known


# Of the second host, whose VMs send the same all the time: graphs of what its uplinks carry.
OF_LOAD = [
    ("fleet", "Sent by each host"),
    ("fleet", "Busiest uplink of each bridge"),
    ("fleet", "Imbalance"),
    ("fleet", "Optimality"),
    ("bridge", "Uplinks: sent"),
    ("bridge", "Utilization"),
    ("decisions", "Busiest uplink against threshold"),
    ("decisions", "Imbalance"),
    ("decisions", "Optimality"),
]


@pytest.mark.parametrize(("dashboard", "title"), OF_LOAD)
def test_loads_are_not_known_while_a_switch_does_not_answer(
    prometheus: Prometheus, dashboard: str, title: str
) -> None:
    """Its counters stand still, and catch up when it answers: by rates, nothing and then a peak."""
    moment = moment_of("still a bad value")
    seen = look(prometheus, moment, dashboard, **(OTHER if dashboard == "bridge" else {}))
    panel = seen.panel(title)
    found = [s for s in seen.ask(panel, panel["targets"][0]) if s.labels["instance"] == HV2]
    assert found
    # The story's service begins without loads, and its switch is gone for two and a half minutes.
    begin_s = story.BEGIN_S + story.MINUTE_S
    gone_s = moment_of("bad value").at_s, moment_of("no answer").at_s
    for series in found:
        told = [(at_s, value) for at_s, value in series.points if at_s > begin_s]
        assert max(v for _, v in told) == pytest.approx(min(v for _, v in told), rel=0.02)
        assert not [at_s for at_s, _ in told if gone_s[0] + SCRAPE_S < at_s < gone_s[1]]
        assert told[-1][0] > gone_s[1] + story.MINUTE_S


@pytest.mark.parametrize(
    ("dashboard", "title"), [("fleet", "Sent by each host"), ("bridge", "Uplinks: sent")]
)
def test_loads_do_not_seem_to_change_while_a_service_ends_or_begins(
    prometheus: Prometheus, dashboard: str, title: str
) -> None:
    """Of a range with samples in a part of it, Prometheus takes these for all there was."""
    seen = look(
        prometheus, moment_of("all back"), dashboard, **(OTHER if dashboard == "bridge" else {})
    )
    panel = seen.panel(title)
    found = [s for s in seen.ask(panel, panel["targets"][0]) if s.labels["instance"] == HV2]
    assert found
    dead_s = moment_of("bridge gone").at_s, moment_of("all dead, 5 minutes shown").at_s
    for series in found:
        told = [(at_s, v) for at_s, v in series.points if at_s > story.BEGIN_S + story.MINUTE_S]
        assert max(v for _, v in told) == pytest.approx(min(v for _, v in told), rel=0.02)
        assert [at_s for at_s, _ in told if dead_s[0] - story.MINUTE_S < at_s < dead_s[0]]
        assert not [at_s for at_s, _ in told if dead_s[0] + story.MINUTE_S < at_s < dead_s[1]]


@pytest.mark.parametrize(
    ("dashboard", "title", "moment", "row", "states"),
    [
        ("controller", "Connection to switches", "mended", "hv2 br0", "green red green"),
        ("controller", "Which service leads", "mended", HV2_STANDBY, "blue"),
        ("controller", "Which service leads", "service back", HV1, "green red green"),
        ("controller", "Which service leads", "nobody leads", HV2, "green red green blue"),
        ("controller", "Which service leads", "mended", "every job", "green"),
        ("controller", "Which service leads", "nobody leads", "every job", "green red"),
        ("decisions", "Unrelieved uplinks", "mended", "hv1 br0 eth3", "green red green"),
    ],
)
def test_timelines_say_since_when(
    prometheus: Prometheus, dashboard: str, title: str, moment: str, row: str, states: str
) -> None:
    seen = look(prometheus, moment_of(moment), dashboard)
    rows = seen.timeline(seen.panel(title))
    assert [state.cell.colour for state in rows[row]] == states.split()
    assert all(state.cell.text.strip("-+0123456789") for row in rows.values() for state in row)


# ---- counts over time, and marks -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bars:
    """A graph whose bars count events: by the name of the bar, what happened of it, when."""

    dashboard: str
    title: str
    told: Callable[[Facts], Iterator[tuple[float, str]]]

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.title}"


def made(of: Callable[[story.Move], str | None]) -> Callable[[Facts], Iterator[tuple[float, str]]]:
    def told(facts: Facts) -> Iterator[tuple[float, str]]:
        for move in facts.moves:
            if (name := of(move)) is not None:
                yield move.at_s, name

    return told


def refused(name: str) -> Callable[[Facts], Iterator[tuple[float, str]]]:
    return lambda facts: ((at_s, name) for at_s in facts.refused)


def bridge_of(move: story.Move) -> str:
    return f"{short(move.instance)} {move.bridge}"


EVENTS = [
    Bars("bridge", "Moves by reason", made(lambda move: move.reason)),
    Bars("bridge", "Failovers", made(lambda m: "failover" if m.reason == "failover" else None)),
    Bars("decisions", "Applied by reason", made(lambda move: move.reason)),
    Bars("decisions", "Refused by reason", refused("manual")),
    Bars(
        "decisions",
        "Failovers by bridge",
        made(lambda m: bridge_of(m) if m.reason == "failover" else None),
    ),
    Bars("fleet", "Moves by bridge", made(bridge_of)),
    Bars(
        "fleet",
        "Failovers by bridge",
        made(lambda m: bridge_of(m) if m.reason == "failover" else None),
    ),
    Bars("fleet", "Refused by bridge and reason", refused("hv1 br0 manual")),
]


@pytest.mark.parametrize("range_s", [1800.0, story.HOUR_S, 6 * story.HOUR_S])
@pytest.mark.parametrize("bars", EVENTS, ids=str)
def test_bars_are_as_many_events_as_there_were_when_they_were(
    prometheus: Prometheus, bars: Bars, range_s: float
) -> None:
    """Whatever the width of the graph, and so of a bar."""
    moment = moment_of("mended")
    chosen = ONE if bars.dashboard == "bridge" else {}
    seen = Look(prometheus, BY_NAME[bars.dashboard], moment.at_s, range_s, chosen)
    panel = seen.panel(bars.title)
    step_s = seen.interval_s(panel)
    drawn = Counter[tuple[float, str]]()
    for target in panel["targets"]:
        for found in seen.ask(panel, target):
            for at_s, value in found.points:
                assert value == int(value), f"{bars}: {value} events"
                drawn[at_s, legend(target, found)] += int(value)
    # A bar is about the time before it.
    so = Counter((-(-at_s // step_s) * step_s, of) for at_s, of in bars.told(moment.facts))
    # Of the first bar, Prometheus does not know from how many on it counts.
    first_s, last_s = story.BEGIN_S + SCRAPE_S + step_s, moment.at_s // step_s * step_s
    told = Counter({key: n for key, n in so.items() if first_s <= key[0] <= last_s})
    assert told
    assert Counter({key: n for key, n in drawn.items() if n and key[0] >= first_s}) == told


def test_a_restart_is_no_event(prometheus: Prometheus) -> None:
    """Counters that begin anew are not counted, neither as a fall nor once more."""
    moment = moment_of("all back")
    for bars in EVENTS:
        seen = look(prometheus, moment, bars.dashboard)
        panel = seen.panel(bars.title)
        found = [series for answer in seen.answers(panel).values() for series in answer]
        assert sum(numbers(found)) == len(list(bars.told(moment.facts))), bars


def marks(seen: Look, query: str) -> Iterator[tuple[int, Any]]:
    """When Grafana draws marks for series whose values are times."""
    panel = {"gridPos": {"w": 24}}
    text = seen.filled(panel, query)
    for series in seen.prometheus.over(text, seen.from_s, seen.at_s, 1.0):
        times = [int(value) for _, value in series.points]
        for early, late in itertools.pairwise([0, *times]):
            if late - early > MARKS_APART_MS:
                yield late, series.labels


@each_moment
def test_every_move_is_marked_once_when_it_was_made(prometheus: Prometheus, name: str) -> None:
    moment = moment_of(name)
    kinds = {"Failovers": {"failover"}, "Failbacks": {"failback"}}
    choices = {str(reason) for reason in Reason} - {"failover", "failback"}
    for dashboard in ("bridge", "decisions"):
        seen = look(prometheus, moment, dashboard)
        for mark in seen.dashboard.annotations:
            reasons = kinds.get(mark["name"], choices)
            drawn = sorted(
                (at_ms, labels["port"], labels["uplink"], labels["reason"])
                for at_ms, labels in marks(seen, mark["expr"])
            )
            so = [
                (move.at_s, move.port, move.uplink, move.reason)
                for move in moment.facts.moves
                if move.reason in reasons and move.at_s > moment.at_s - moment.range_s
            ]
            if not any(moment.facts.services.values()) and dashboard == "decisions":
                # How many bridges there are is not known.
                continue
            assert sorted(told for _, *told in drawn) == sorted(told for _, *told in so)
            for (at_ms, *_), (at_s, *_) in zip(drawn, sorted(so), strict=True):
                assert 0 <= at_s - at_ms / 1000 <= SCRAPE_S


# ---- every panel -----------------------------------------------------------------------


@each_dashboard
def test_graphs_without_values_say_so(prometheus: Prometheus, dashboard: Dashboard) -> None:
    """Of series that are not a number, Grafana draws an empty graph with a legend."""
    for name in ("quiet", "all back"):
        seen = look(prometheus, moment_of(name), dashboard.name)
        for panel in (panel for panel in dashboard.asking if panel["type"] == "timeseries"):
            for more in seen.repeats(panel):
                for found in seen.answers(panel, **more).values():
                    assert all(series.numbers for series in found), panel["title"]


@each_dashboard
def test_every_query_has_data_where_something_happened(
    prometheus: Prometheus, dashboard: Dashboard
) -> None:
    silent = {(panel["title"], t["refId"]) for panel in dashboard.asking for t in panel["targets"]}
    for name in TELLING:
        chosen = [ONE, LABORATORY] if dashboard.name == "bridge" else [{}]
        for seen in (look(prometheus, moment_of(name), dashboard.name, **c) for c in chosen):
            for panel in dashboard.asking:
                for more in seen.repeats(panel):
                    for ref, found in seen.answers(panel, **more).items():
                        _has_names_of_its_own(panel, ref, found)
                        if numbers(found):
                            silent.discard((panel["title"], ref))
    assert {where for where in silent if (dashboard.name, where[0]) not in NO_CAUSE} == set()


def _has_names_of_its_own(panel: Panel, ref: str, found: Sequence[recorded.Found]) -> None:
    """Two lines of one name cannot be told apart."""
    (target,) = [target for target in panel["targets"] if target["refId"] == ref]
    if target["legendFormat"]:
        named = Counter(legend(target, series) for series in found)
        assert named.total() == len(named), f"{panel['title']}: {named.most_common(1)}"


@each_dashboard
def test_nothing_is_green_without_data(prometheus: Prometheus, dashboard: Dashboard) -> None:
    """An empty Prometheus, and no variable that has a value."""
    chosen = dict.fromkeys(ONE, "") if dashboard.name == "bridge" else {}
    seen = Look(prometheus, dashboard, NOTHING_S, story.HOUR_S, chosen)
    for panel in dashboard.asking:
        for more in seen.repeats(panel):
            answers = seen.answers(panel, **more)
            names_only = panel["options"].get("textMode") == "name"
            found = [series for answer in answers.values() for series in answer]
            assert names_only or not numbers(found), panel["title"]
        if panel["type"] == "stat":
            assert [tile.text for tile in seen.tiles(panel)] == ["not known"], panel["title"]
        assert not [cell for cell in seen.cells(panel) if cell.is_green], panel["title"]


@each_moment
@each_dashboard
def test_what_is_not_known_is_not_green(
    prometheus: Prometheus, dashboard: Dashboard, name: str
) -> None:
    seen = look(prometheus, moment_of(name), dashboard.name)
    for panel in dashboard.asking:
        for cell in seen.cells(panel):
            assert not (cell.text in NOTHING_SAID and cell.is_green), panel["title"]


def green_of_all(seen: Look) -> Iterator[str]:
    """What says of all services, bridges or uplinks together that they are well now."""
    for panel in seen.dashboard.asking:
        if panel["type"] == "stat":
            yield from (panel["title"] for tile in seen.tiles(panel) if tile.is_green)
        if panel["type"] == "state-timeline":
            for target in panel["targets"]:
                for series in seen.ask(panel, target):
                    cell = shown.display(shown.configured(panel, ""), series.value)
                    is_now = series.points[-1][0] > seen.at_s - SCRAPE_S
                    if series.labels["instance"] in OF_ALL and is_now and cell.is_green:
                        yield panel["title"]


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "bridge"])
def test_all_are_well_only_while_all_are_heard_of(prometheus: Prometheus, name: str) -> None:
    """One that does not answer, or that nobody decides for, is not hidden by those that are well."""
    for moment in ("service dead", "service still dead", "all dead", "all dead, 5 minutes shown"):
        assert list(green_of_all(look(prometheus, moment_of(moment), name))) == [], moment
    # One of forty.
    assert list(green_of_all(at_fleet(prometheus, name))) == []
    # All services answer then, and that is all.
    leaderless = set(green_of_all(look(prometheus, moment_of("nobody leads"), name)))
    assert leaderless <= {"Services down"}
    assert "Services down" not in leaderless or name != "decisions"


def test_nothing_of_a_bridge_that_is_not_heard_of_is_green(prometheus: Prometheus) -> None:
    """Not even that nothing has happened to it: what did while nobody looked is not known."""
    for moment, chosen, known in (
        ("no answer", OTHER, {"Configuration errors"}),
        ("service dead", ONE, set()),
        ("nobody leads", OTHER, set()),
    ):
        seen = look(prometheus, moment_of(moment), "bridge", **chosen)
        green = {
            panel["title"]
            for panel in seen.dashboard.asking
            if panel["type"] != "state-timeline"
            for cell in seen.cells(panel)
            # The colour of a reason.
            if cell.is_green and cell.text != Reason.FAILBACK
        }
        assert green == known, moment


# ---- forty hosts -----------------------------------------------------------------------


def at_fleet(prometheus: Prometheus, name: str) -> Look:
    return Look(prometheus, BY_NAME[name], FLEET_BEGIN_S + FLEET_S, story.HOUR_S)


def test_four_of_forty_hosts_are_found(prometheus: Prometheus) -> None:
    seen = at_fleet(prometheus, "fleet")
    said = {p["title"]: str(seen.tiles(p)[0]) for p in seen.first_screen() if p["type"] == "stat"}
    assert said == {
        "Services down": "1 (red)",
        "Bridges not connected": UNKNOWN,
        "Uplinks down": "1 (red)",
        "Unrelieved uplinks": "1 (red)",
        "Configuration errors": "1 (red)",
    }
    rows = seen.table(seen.panel("Bridges"))
    assert sorted(row["Host"].text for row in rows) == sorted(set(HOSTS) - {DEAD})
    wrong = {
        row["Host"].text
        for row in rows
        if any("red" in row[c].colour for c in ("Uplinks down", "Errors", "Unrelieved"))
    }
    assert wrong == {LINKLESS, MISCONFIGURED, FULL}
    assert {row["Host"].text for row in rows[: len(wrong)]} == wrong, "they are not the first"


def test_the_worst_of_forty_hosts_comes_first(prometheus: Prometheus) -> None:
    seen = at_fleet(prometheus, "fleet")
    bars = seen.bars(seen.panel("Worst uplinks"))
    assert len(bars) == MOST_LINES
    assert FULL.partition(":")[0] in bars[0][0]
    assert not bars[0][1].is_green
    assert all(cell.is_green for _, cell in bars[1:])
    assert all(cell.text.endswith("%") for _, cell in bars)


def test_an_uplink_known_to_be_unrelieved_is_shown_while_a_service_is_down(
    prometheus: Prometheus,
) -> None:
    seen = at_fleet(prometheus, "decisions")
    panel = seen.panel("Unrelieved uplinks")
    rows = seen.timeline(panel)
    host = FULL.partition(":")[0]
    assert len(rows) == 2
    assert any(row.startswith(f"{host} br0 ") for row in rows)
    assert all([s.cell.colour for s in states] == ["green", "red"] for states in rows.values())
    (found,) = seen.answers(panel).values()
    assert {series.points[-1][0] for series in found} == {seen.at_s}


def test_a_host_has_one_colour_for_what_it_sends_and_receives(prometheus: Prometheus) -> None:
    """Grafana colours lines by their order, which is that of the answer."""
    seen = at_fleet(prometheus, "fleet")
    named = [
        [series.labels["host"] for series in found]
        for title in ("Sent by each host", "Received by each host")
        for found in seen.answers(seen.panel(title)).values()
    ]
    sent, received = named
    assert sent == received
    assert len(sent) == len(set(sent)) == MOST_LINES


@pytest.mark.parametrize("name", ["fleet", "decisions", "controller"])
def test_forty_hosts_can_be_read(prometheus: Prometheus, name: str) -> None:
    """No graph has a line for each host; nothing is marked; timelines have rows with news only."""
    seen = at_fleet(prometheus, name)
    for panel in seen.dashboard.asking:
        if panel["type"] in ("timeseries", "state-timeline", "bargauge"):
            for ref, found in seen.answers(panel).items():
                # Of all the time, and not of each step: a line that comes and goes is one, too.
                assert len(found) <= MOST_LINES, f"{panel['title']} {ref}: {len(found)} lines"
    for mark in seen.dashboard.annotations:
        assert not list(marks(seen, mark["expr"]))


# ---- the document ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_document_is_what_is_shown(prometheus: Prometheus) -> None:
    expected = f"run {dashboard_story.COMMAND}"
    assert dashboard_story.DOCUMENT.read_text() == dashboard_story.made(prometheus), expected
