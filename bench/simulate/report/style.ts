/** The page's style: system colours of its own, light and dark. */
export const STYLE = `
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1d1f21; --soft: #5f6468; --grid: #e3e4e2; --panel: #f4f4f1;
  --blue: #2a6fb5; --orange: #c8641b; --green: #2f8a57; --grey: #8a8f94; }
@media (prefers-color-scheme: dark) { :root { --page: #16181a; --ink: #e6e6e3; --soft: #a0a5a9; --grid: #2c2f32; --panel: #1d2023;
  --blue: #6aa9e8; --orange: #ec9a55; --green: #68c08d; --grey: #7d8287; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; } h3 { font-size: .95rem; margin: 1.4rem 0 .2rem; }
p { max-width: 48rem; margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem .3rem 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: .82rem; } th:first-child, td:first-child { text-align: left; }
td.quiet { color: var(--soft); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: .5rem 1.5rem; }
@media (max-width: 30rem) { .pair { grid-template-columns: 1fr; } }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.tick, .label, .dot-label { fill: var(--soft); font: 11px system-ui, sans-serif; } .dot-label { fill: var(--ink); }
.line { fill: none; stroke-width: 1.4; stroke-linejoin: round; } .thin { stroke-width: .8; opacity: .7; } .band { stroke: none; opacity: .22; }
.line.blue { stroke: var(--blue); } .line.orange { stroke: var(--orange); } .line.green { stroke: var(--green); } .line.grey { stroke: var(--grey); }
.band.blue, .dot.blue { fill: var(--blue); } .band.orange, .dot.orange { fill: var(--orange); } .dot.green { fill: var(--green); }
.dot.grey { fill: var(--grey); }
.key { vertical-align: -.05em; display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 .5em; } .entry { white-space: nowrap; margin-right: .6em; }
.key.blue { background: var(--blue); } .key.orange { background: var(--orange); } .key.green { background: var(--green); } .key.grey { background: var(--grey); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; font-size: .9rem; } dt { color: var(--soft); } dd { margin: 0; }
`;
