"""The style of the page: one neutral palette in light and in dark, the reader's own fonts."""

from biosqueeze.reporting.markup import Markup

CSS = Markup("""
:root { color-scheme: light dark; --paper: #f6f7f8; --card: #ffffff; --ink: #1d2329; --muted: #646e78;
  --line: #dfe3e7; --accent: #3b82c4; --tint: rgba(59, 130, 196, .16); }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --card: #1d2125; --ink: #e6e9ec; --muted: #98a2ac;
  --line: #343a41; --accent: #6ba6dc; --tint: rgba(107, 166, 220, .22); } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 14px; }
h3 { font-size: 15px; margin: 22px 0 2px; }
h2 + h3, .small + h3, .two h3:first-child { margin-top: 0; }
p { margin: 0 0 12px; }
.muted, figcaption, footer { color: var(--muted); }
.small, footer, figcaption { font-size: 13px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin-top: 18px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin-top: 20px; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.figure b { display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.figure span { color: var(--muted); font-size: 13px; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 36px; margin-top: 26px; }
@media (max-width: 700px) { .two { grid-template-columns: 1fr; } }
.stack { display: flex; height: 26px; border-radius: 6px; overflow: hidden; gap: 2px; margin-bottom: 10px; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 500; text-align: left; font-size: 13px; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: middle; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; }
.bar { display: inline-block; height: 9px; border-radius: 3px; background: var(--accent); }
.tag, .chip { display: inline-block; border-radius: 5px; padding: 1px 8px; font-size: 13px; }
.tag { background: var(--tint); font-weight: 600; }
.chip { border: 1px solid var(--line); margin: 3px 4px 0 0; overflow-wrap: anywhere; }
.chip i { color: var(--muted); font-style: normal; }
ol { list-style: none; margin: 0; padding: 0; }
li { border-left: 2px solid var(--line); padding: 0 0 18px 18px; position: relative; }
li:last-child { padding-bottom: 0; }
li::before { content: ""; position: absolute; left: -6px; top: 7px; width: 10px; height: 10px; border-radius: 50%;
  background: var(--accent); }
figure { margin: 8px 0 0; }
figure > .scroll > svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { font-family: inherit !important; }
footer { margin-top: 22px; overflow-wrap: anywhere; }
@media print { body { background: none; } section { break-inside: avoid; } }
""")
