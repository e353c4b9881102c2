"""The style sheet of the page: light and dark, for screens of any width and for print."""

CSS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2330; --soft: #5b6675; --rule: #dfe4ea; --tint: #f4f6f9;
  --ours: #1559a8; --ours-bar: #9cc3ee; --peer: #a6510a; --peer-bar: #efc79c;
  --good: #1c7a3e; --good-tint: #e6f4ea; --bad: #b3261e; --bad-tint: #fbe9e7;
  --measured: #eef2f7; --mark: #1c2330;
  --u1: #1f5fa8; --u2: #d9730d; --u3: #2f8f4e; --u4: #8a4fb0;
  --u5: #b3415d; --u6: #1b8f94; --u7: #8a6d1a; --u8: #5b6675;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161d; --ink: #e4e8ee; --soft: #9aa5b3; --rule: #2b333f; --tint: #1a2029;
    --ours: #7db6f5; --ours-bar: #234e7d; --peer: #f0a766; --peer-bar: #6b4321;
    --good: #6fcf8f; --good-tint: #16301f; --bad: #ff8a80; --bad-tint: #3a1b19;
    --measured: #1d2530; --mark: #e4e8ee;
    --u1: #6ea8ee; --u2: #f39a4a; --u3: #66c586; --u4: #c08fe0;
    --u5: #ee839c; --u6: #57c7cb; --u7: #d0b35a; --u8: #9aa5b3;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 84rem; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 4rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  -webkit-text-size-adjust: 100%;
}
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 3rem 0 .3rem; padding-top: 1.1rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.8rem 0 .5rem; }
p { margin: .4rem 0; max-width: 46rem; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9em; }
.above, .soft, .note { color: var(--soft); }
.above { margin: 0; font-size: .85rem; letter-spacing: .06em; text-transform: uppercase; }
.lead { font-size: 1.15rem; }
.note, .soft { font-size: .85rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .8rem 0; list-style: none; }
a { color: var(--ours); }

.verdicts { list-style: none; margin: .6rem 0; padding: 0; border: 1px solid var(--rule); border-radius: 8px; }
.verdicts li { display: grid; grid-template-columns: 3.6rem 1fr; gap: 0 .6rem; padding: .45rem .8rem; }
.verdicts li + li { border-top: 1px solid var(--rule); }
.verdict { align-self: start; margin-top: .15rem; border-radius: 4px; text-align: center;
  font-size: .75rem; font-weight: 700; letter-spacing: .04em; padding: .1rem 0; }
.pass { color: var(--good); background: var(--good-tint); }
.fail { color: var(--bad); background: var(--bad-tint); }
.found { color: var(--soft); }

.wide { overflow-x: auto; margin: .8rem 0; border: 1px solid var(--rule); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .45rem; text-align: right; vertical-align: top; }
thead th { vertical-align: bottom; font-weight: 600; line-height: 1.25; background: var(--tint); }
th.published { font-weight: 400; font-size: .85em; color: var(--soft); padding-left: .2rem; }
th.words { min-width: 12rem; }
thead small, td small { display: block; font-weight: 400; color: var(--soft); font-size: .85em; white-space: nowrap; }
tbody tr + tr > *, tbody + tbody tr > * { border-top: 1px solid var(--rule); }
th:first-child, .words { text-align: left; }
th:first-child { padding-left: .8rem; }
tbody th { font-weight: 500; white-space: nowrap; position: sticky; left: 0; background: var(--paper); }
thead th:first-child { position: sticky; left: 0; z-index: 1; }
tr.ours > th { box-shadow: inset 4px 0 var(--ours); }
tr.peer > th { box-shadow: inset 4px 0 var(--peer); }
tr.limit > *, tr.document > *, tr.oracle > * { background: var(--tint); color: var(--soft); }
td.published { color: var(--soft); padding-left: .2rem; }
td.best { font-weight: 700; }
tr.ours td.best, .of-ours { color: var(--ours); }
tr.peer td.best, .of-peers { color: var(--peer); }
.tag { margin-left: .5rem; padding: .05rem .4rem; border-radius: 4px; border: 1px solid currentColor;
  font-size: .8em; font-weight: 600; white-space: nowrap; }
.bar { position: relative; display: block; height: 6px; min-width: 4.6rem; margin: .3rem 0 .1rem;
  background: var(--rule); border-radius: 3px; }
.bar i { position: absolute; inset: 0 auto 0 0; border-radius: 3px; background: var(--soft); }
tr.ours .bar i { background: var(--ours-bar); }
tr.peer .bar i { background: var(--peer-bar); }
tr.ours .best .bar i { background: var(--ours); }
tr.peer .best .bar i { background: var(--peer); }
.bar b { position: absolute; top: -3px; bottom: -3px; width: 2px; margin-left: -1px; background: var(--mark); }

.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .4rem 0; list-style: none;
  font-size: .85rem; color: var(--soft); }
.swatch { width: 26px; height: 10px; vertical-align: middle; margin-right: .4rem; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; padding: .6rem .6rem .2rem; border: 1px solid var(--rule); border-radius: 8px; break-inside: avoid; }
figcaption { display: flex; justify-content: space-between; gap: .5rem; font-size: .9rem; font-weight: 600; }
figcaption small { font-weight: 400; color: var(--soft); }
figure svg { display: block; width: 100%; height: auto; }
svg text { font-size: 10px; fill: var(--soft); }
.grid { stroke: var(--rule); }
.capacity { stroke: var(--soft); stroke-dasharray: 4 3; }
.measured { fill: var(--measured); }
.move { stroke: var(--bad); stroke-width: 1.5; }
.moved { stroke: var(--bad); opacity: .3; }
.line { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
.u1 { stroke: var(--u1); } .u2 { stroke: var(--u2); } .u3 { stroke: var(--u3); } .u4 { stroke: var(--u4); }
.u5 { stroke: var(--u5); } .u6 { stroke: var(--u6); } .u7 { stroke: var(--u7); } .u8 { stroke: var(--u8); }
.d2 { stroke-dasharray: 5 2; } .d3 { stroke-dasharray: 1.5 2; }

details { margin: 1.2rem 0; }
summary { cursor: pointer; color: var(--ours); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: .6rem 0; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }

@media (max-width: 36rem) {
  h1 { font-size: 1.6rem; }
  th, td { padding: .4rem .5rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  .tag { display: block; width: max-content; margin: .15rem 0 0; }
}
@page { margin: 12mm; }
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wide { overflow: visible; border: none; }
  table { font-size: 7pt; }
  th, td { padding: .2rem .25rem; }
  th:first-child { padding-left: .5rem; }
  .bar, th.words { min-width: 0; }
  tr, li { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .charts { grid-template-columns: repeat(3, 1fr); gap: .5rem; }
  nav, details { display: none; }
}
"""
