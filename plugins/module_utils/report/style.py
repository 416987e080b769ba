# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Style of the page: light, dark, printed, narrow and wide. Loads nothing."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --text: #16181d; --quiet: #565b66; --edge: #d5d7dc; --code: #eef0f3;
  --ok: #1a7f45; --warning: #9a6200; --broken: #c22a2a; --consequence: #5d6472; --unknown: #5d6472;
  --value: #1f66c1; --target: #6b7080; --current: #1a7f45; --desired: #b4570b; --focus: #1f66c1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161a; --card: #1d2026; --text: #eceef2; --quiet: #aab0bd; --edge: #3a3f49; --code: #282c34;
    --ok: #4cc38a; --warning: #f0b64c; --broken: #ff7b72; --consequence: #a3aab8; --unknown: #a3aab8;
    --value: #6cb0ff; --target: #a3aab8; --current: #4cc38a; --desired: #ffa657; --focus: #6cb0ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 100rem; padding: 1rem clamp(.75rem, 2vw, 2rem) 2rem;
  background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere;
}
h1 { font-size: clamp(1.35rem, 1rem + 1.5vw, 2rem); line-height: 1.2; margin: 0; }
h2 { font-size: 1.3rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1.05rem; margin: 1.25rem 0 .5rem; }
h4 { font-size: 1rem; margin: 0; }
p { margin: .5rem 0; max-width: 75ch; }
a { color: inherit; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: .5rem; top: .5rem; background: var(--card); padding: .5rem 1rem; z-index: 1; }
.quiet { color: var(--quiet); }
code {
  font: .9em ui-monospace, "DejaVu Sans Mono", monospace;
  background: var(--code); padding: .1em .3em; border-radius: 3px;
}

.verdict { display: flex; gap: .75rem; align-items: center; }
.verdict .light { width: 3rem; height: 3rem; }
.facts { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .75rem 0 0; }
.facts div { display: flex; gap: .4rem; }
.facts dt { color: var(--quiet); white-space: nowrap; }
.facts dd { margin: 0; }

.light { width: 2.25rem; height: 2.25rem; flex: none; display: block; }
.light .shape { fill: var(--card); stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.light .sign { fill: none; stroke: currentColor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
.light.ok .shape, .light.broken .shape { fill: currentColor; }
.light.ok .sign, .light.broken .sign { stroke: var(--card); stroke-width: 2.5; }
.light.consequence .shape { stroke-dasharray: 3.5 2.5; }
.ok { color: var(--ok); } .warning { color: var(--warning); } .broken { color: var(--broken); }
.consequence { color: var(--consequence); } .partial, .unknown { color: var(--unknown); }
.word { font-weight: 700; }

.chain { list-style: none; margin: 0; padding: 0; display: grid; }
.chain li { position: relative; min-width: 0; font-size: .85rem; line-height: 1.35; }
.chain .light { position: relative; }
.chain .title { font-weight: 600; display: block; overflow-wrap: break-word; }
.chain .title b { font-weight: inherit; }
.chain .word { display: block; }
@media (min-width: 48rem) {
  .chain { grid-template-columns: repeat(4, 1fr); gap: 1.5rem 0; }
  .chain li { padding: 0 .4rem; text-align: center; }
  .chain li::before { content: ""; position: absolute; border: 0 solid var(--edge); }
  .chain li.dark::before { border-style: dashed; }
  .chain li::before { left: -50%; width: 100%; top: calc(1.125rem - 1.5px); border-top-width: 3px; }
  .chain li:first-child::before { content: none; }
  .chain li:nth-child(4n+1):not(:first-child)::before { left: 0; width: 50%; }
  .chain li:nth-child(4n):not(:last-child)::after {
    content: ""; position: absolute; left: 50%; width: 50%; top: calc(1.125rem - 1.5px);
    border-top: 3px solid var(--edge);
  }
  .chain li:nth-child(4n):not(:last-child):has(+ .dark)::after { border-top-style: dashed; }
  .chain .light { margin: 0 auto .35rem; z-index: 1; }
  .chain .summary { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 6; overflow: hidden; }
}
@media (min-width: 85rem) {
  .chain:not(:has(li:nth-child(13))) {
    grid-template-columns: none; grid-auto-flow: column; grid-auto-columns: minmax(0, 1fr);
  }
  .chain:not(:has(li:nth-child(13))) li:nth-child(n):not(:first-child)::before { left: -50%; width: 100%; }
  .chain:not(:has(li:nth-child(13))) li:nth-child(n)::after { content: none !important; }
  .chain:not(:has(li:nth-child(13))) li { padding: 0 .15rem; }
}
@media (max-width: 47.99rem) {
  .chain li { padding: 0 0 1rem 3rem; }
  .chain .light { position: absolute; left: 0; top: 0; z-index: 1; }
  .chain li:not(:last-child)::after {
    content: ""; position: absolute; left: calc(1.125rem - 1.5px); top: 2.25rem; bottom: 0;
    border-left: 3px solid var(--edge);
  }
  .chain li:has(+ .dark)::after { border-left-style: dashed; }
}

.cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
.card {
  background: var(--card); border: 1px solid var(--edge); border-radius: 8px; padding: 1rem; min-width: 0; margin: 0;
}
.finding { border-left: 6px solid; border-left-color: currentColor; }
.finding > * { color: var(--text); }
.finding header { display: flex; gap: .6rem; align-items: flex-start; }
.finding header .light { width: 1.75rem; height: 1.75rem; }
.finding header .light.broken { color: var(--broken); } .finding header .light.warning { color: var(--warning); }
.finding dl { margin: .75rem 0 0; display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .4rem .75rem; }
.finding dt { color: var(--quiet); } .finding dd { margin: 0; }
.finding dd ul { margin: 0; padding-left: 1.1rem; }
.finding .fix { background: var(--code); border-radius: 4px; padding: .35rem .6rem; font-weight: 600; }

.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--edge); border-radius: 8px; }
.facts + .scroll, .scroll + .scroll { margin-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; padding: .5rem .75rem; color: var(--quiet); }
/* as wide as the frame on a phone, where the table scrolls below it */
caption { box-sizing: border-box; max-width: calc(100vw - 26px); }
th, td { text-align: left; padding: .4rem .6rem; border-top: 1px solid var(--edge); vertical-align: top; }
thead th { border-top: 0; color: var(--quiet); font-weight: 600; overflow-wrap: normal; }
tbody th { font-weight: 600; }
.figures, thead th.figures { text-align: right; font-variant-numeric: tabular-nums; }
td.word { white-space: nowrap; }
td, tbody th { overflow-wrap: break-word; min-width: 5rem; }
tbody th { min-width: 9rem; }
td.figures { white-space: nowrap; min-width: 0; }

@media (max-width: 47.99rem) {
  .list table, .list caption, .list tbody, .list tr, .list td, .list tbody th { display: block; }
  .list thead { position: absolute; left: -100rem; }
  .list tr { padding: .5rem .75rem; border-top: 1px solid var(--edge); }
  .list td, .list tbody th { border: 0; padding: .1rem 0; min-width: 0; text-align: left; white-space: normal; }
  .list td[data-title]::before { content: attr(data-title) ": "; color: var(--quiet); }
}

.plots { grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); margin-top: 1rem; }
.plots .card { max-width: 42rem; }
.card.wide { max-width: 44rem; margin: 1rem 0; }
.plots h3 { margin: 0 0 .5rem; }
.plot { width: 100%; height: auto; display: block; }
.plot text { font-size: 12px; fill: var(--quiet); }
.plot .name { font-weight: 600; fill: var(--text); }
.plot .grid { stroke: var(--edge); }
.plot .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.plot .value { stroke: var(--value); }
.plot .target { stroke: var(--target); stroke-dasharray: 7 5; }
.plot .current { stroke: var(--current); }
.plot .desired { stroke: var(--desired); stroke-width: 7; stroke-opacity: .4; stroke-linecap: butt; }
footer { margin-top: 2rem; color: var(--quiet); font-size: .85rem; }

@media print {
  :root {
    --page: #fff; --card: #fff; --text: #000; --quiet: #333; --edge: #999; --code: #f2f2f2;
    --ok: #176a3b; --warning: #7d4f00; --broken: #a31515; --consequence: #444; --unknown: #444;
    --value: #124a94; --target: #444; --current: #176a3b; --desired: #8a4000;
  }
  body { max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .card, tr, .chain li { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  .skip { display: none; }
  .chain .summary { display: block; }
}
"""
