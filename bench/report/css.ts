/** The report's style; colours keep a contrast of 4.5 with the ground in both schemes. */
export const REPORT_CSS = `
:root {
  --grid: light-dark(#e1e5ea, #2f3641);
  --c0: light-dark(#1d5fd1, #6ea8fe);
  --c1: light-dark(#b45309, #f0a35c);
  --c2: light-dark(#15803d, #5ccb84);
  --c3: light-dark(#9333ea, #c79bff);
  --c4: light-dark(#be123c, #ff8fa3);
  --c5: light-dark(#0e7490, #5fd0e6);
}
h1 { font-size: 1.6rem; margin: 0 0 8px; }
h2 { font-size: 1.2rem; margin: 32px 0 8px; }
.environment { color: var(--quiet); margin: 0; }
.note { background: var(--raised); border-left: 4px solid var(--c1); padding: 8px 12px; }
figure { margin: 0 0 28px; background: var(--raised); border-radius: 8px; padding: 12px 16px; }
figcaption { font-weight: 600; margin-bottom: 4px; }
figcaption span { font-weight: 400; color: var(--quiet); }
svg { width: 100%; height: auto; display: block; font: 12px system-ui, sans-serif; }
.grid { stroke: var(--grid); fill: none; }
.label, .value { fill: var(--text); }
.tick { fill: var(--quiet); }
.bar { fill: var(--c0); opacity: 0.55; }
.whisker { stroke: var(--text); stroke-width: 1.5; fill: none; }
.sample { fill: var(--text); opacity: 0.35; }
.line ~ g .whisker { stroke: var(--series); }
.line ~ g .sample { fill: var(--series); }
.line { fill: none; stroke: var(--series); stroke-width: 2; }
.dot { fill: var(--series); }
.series0 { --series: var(--c0); }
.series1 { --series: var(--c1); }
.series2 { --series: var(--c2); }
.series3 { --series: var(--c3); }
.series4 { --series: var(--c4); }
.series5 { --series: var(--c5); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; list-style: none; margin: 0 0 4px; padding: 0; font-size: 13px; }
.legend li::before { content: ''; display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 6px; background: var(--series); vertical-align: -1px; }
pre, .scroll { overflow-x: auto; background: var(--raised); border-radius: 8px; padding: 12px; }
pre { font: 13px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; padding: 3px 14px 3px 0; vertical-align: top; font-variant-numeric: tabular-nums; }
thead { color: var(--quiet); }
.better { color: var(--c2); font-weight: 600; }
.worse { color: var(--c4); font-weight: 600; }
details { margin-top: 16px; }
summary { cursor: pointer; }
`;
