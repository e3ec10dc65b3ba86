"""How the page looks."""

STYLE = """
:root { --ink: #1d2530; --faint: #66717d; --rule: #e3e7eb; --wash: #f6f8fa; --bad: #b3261e; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
h1 { margin: 0; font-size: 1.9rem; line-height: 1.2; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 3.2rem 0 0.4rem; font-size: 1.25rem; }
h3 { margin: 2rem 0 0.3rem; font-size: 1rem; }
p { margin: 0.3rem 0 0.9rem; max-width: 44rem; color: var(--faint); }
code { font: 0.86em/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 2.6rem; margin: 1.8rem 0 0; padding: 1.2rem 0;
  border-top: 2px solid var(--ink); border-bottom: 1px solid var(--rule); }
.facts div { display: flex; flex-direction: column-reverse; }
.facts dt { color: var(--faint); font-size: 0.82rem; }
.facts dd { margin: 0; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 0.3rem 1.4rem; margin: 0.8rem 0; padding: 0; list-style: none;
  font-size: 0.88rem; }
.legend i { display: inline-block; width: 0.75rem; height: 0.75rem; margin-right: 0.45rem; border-radius: 2px;
  vertical-align: -1px; }
.wide { overflow-x: auto; margin: 0.6rem 0 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
th { padding: 0.35rem 0.55rem; border-bottom: 1px solid var(--ink); color: var(--faint); font-weight: 500;
  text-align: left; vertical-align: bottom; }
td { padding: 0.35rem 0.55rem; border-bottom: 1px solid var(--rule); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
td:first-child { min-width: 6.5rem; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; }
td.n, td.k { white-space: nowrap; }
tr.whole td { background: var(--wash); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
figure { margin: 0.8rem 0 1.4rem; overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; min-width: 34rem; }
details { border-bottom: 1px solid var(--rule); }
summary { display: flex; gap: 1rem; padding: 0.55rem 0; cursor: pointer; list-style: none; }
summary b { flex: 0 0 13rem; font-weight: 600; }
summary span { flex: 1; color: var(--faint); }
summary em { font-style: normal; font-variant-numeric: tabular-nums; }
summary::-webkit-details-marker { display: none; }
summary b::before { content: "▸"; display: inline-block; width: 1.1em; color: var(--faint); }
details[open] summary b::before { content: "▾"; }
details.none summary { cursor: default; color: var(--faint); }
details.none b { font-weight: 400; }
details.none b::before { visibility: hidden; }
footer { margin-top: 3.5rem; padding-top: 1rem; border-top: 1px solid var(--rule); font-size: 0.86rem; }
@media print { main { max-width: none; padding: 0; } details > * { display: block; } }
"""
