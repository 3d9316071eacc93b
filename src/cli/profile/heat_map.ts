import { pageHtml } from '../../base/html.js';
import type { MeasuredProfile } from '../../engine/measure/measure_profile.js';

const LEFT = 64;
const TOP = 40;
const SIZE = 640;

/**
 * A profile as a heat map: rows are layers, columns kv heads, the colour is the kept part of a prompt and the bar in a cell its spread.
 * One HTML file that needs nothing beside it, light or dark as the reader's system is.
 */
export function heatMapHtml(profile: MeasuredProfile): string {
  const { model, kv_budget: budget, samples, prompt_tokens: tokens, policy } = profile;
  const title = `${model}: kept part of the KV cache by head`;
  const most = Math.max(...profile.share.flat());
  return pageHtml(
    title,
    CSS,
    `<p>KV budget ${budget}, policy ${policy}, ${samples} samples of ${tokens.least} to ${tokens.most} tokens (mean ${tokens.mean.toFixed(0)}).
A cell's colour is the part of a prompt that the head keeps, on average; the line at its foot is one standard deviation over the samples, full width for ${percent(Math.max(...profile.share_std.flat()))}.</p>
<figure>${legend(most)}${mapSvg(profile, most)}</figure>
<h2>Numbers</h2>
${table(profile)}`,
  );
}

const percent = (part: number): string => `${(100 * part).toFixed(part < 0.1 ? 1 : 0)}%`;

/** Paint of a part, from the ground (0) to the accent (1); the same steps in both schemes. */
const paint = (part: number): string => `color-mix(in oklab, var(--hot) ${(100 * part).toFixed(1)}%, var(--cold))`;

function mapSvg({ share, share_std: std, layers }: MeasuredProfile, most: number): string {
  const heads = layers[0]!.length;
  const widest = Math.max(...std.flat(), Number.MIN_VALUE);
  const cell = Math.max(18, Math.min(64, SIZE / heads));
  const height = Math.max(18, Math.min(48, cell));
  const spoken = cell >= 44;
  const rows = share.map((parts, layer) => {
    const y = TOP + layer * height;
    const cells = parts.map((part, head) => {
      const x = LEFT + head * cell;
      const spread = (std[layer]![head]! / widest) * (cell - 6);
      return (
        `<g><title>layer ${layer}, head ${head}: ${percent(part)} ± ${percent(std[layer]![head]!)} of a prompt, ${layers[layer]![head]!.toFixed(1)} entries</title>` +
        `<rect x="${x + 1}" y="${y + 1}" width="${cell - 2}" height="${height - 2}" rx="3" style="fill:${paint(part / most)}"/>` +
        (spoken
          ? `<text class="value" x="${x + cell / 2}" y="${y + height / 2 + 3}" text-anchor="middle">${percent(part)}</text>`
          : '') +
        `<path class="spread" d="M${x + 3} ${y + height - 4}h${spread.toFixed(1)}"/></g>`
      );
    });
    return `<text class="axis" x="${LEFT - 8}" y="${y + height / 2 + 4}" text-anchor="end">${layer}</text>${cells.join('')}`;
  });
  const columns = layers[0]!.map(
    (_, head) =>
      `<text class="axis" x="${LEFT + (head + 0.5) * cell}" y="${TOP - 8}" text-anchor="middle">${head}</text>`,
  );
  const [width, tall] = [LEFT + heads * cell + 8, TOP + share.length * height + 8];
  return (
    `<div class="scroll" tabindex="0" role="region" aria-label="Heat map"><svg viewBox="0 0 ${width} ${tall}" width="${width}" height="${tall}" role="img" aria-label="Kept part of the cache by layer (rows) and kv head (columns); the numbers are in the table below">` +
    `<text class="axis" x="${LEFT}" y="14">kv head</text><text class="axis" x="8" y="${TOP - 8}">layer</text>${columns.join('')}${rows.join('')}</svg></div>`
  );
}

function legend(most: number): string {
  const steps = Array.from({ length: 24 }, (_, i) => `<i style="background:${paint(i / 23)}"></i>`);
  return `<figcaption>kept: 0% <span class="ramp" aria-hidden="true">${steps.join('')}</span> ${percent(most)}</figcaption>`;
}

function table({ layers, std, share, share_std: shareStd }: MeasuredProfile): string {
  const head = layers[0]!.map((_, index) => `<th scope="col">head ${index}</th>`).join('');
  const rows = layers.map(
    (heads, layer) =>
      `<tr><th scope="row">${layer}</th>${heads
        .map(
          (mean, at) =>
            `<td>${mean.toFixed(1)} ± ${std[layer]![at]!.toFixed(1)}<br><span>${percent(share[layer]![at]!)} ± ${percent(shareStd[layer]![at]!)}</span></td>`,
        )
        .join('')}</tr>`,
  );
  return `<div class="scroll" tabindex="0" role="region" aria-label="Numbers"><table><caption>Kept entries, and as a part of the prompt; mean ± standard deviation</caption><thead><tr><th scope="col">layer</th>${head}</tr></thead><tbody>${rows.join('')}</tbody></table></div>`;
}

const CSS = `
:root {
  /* Text keeps a contrast of 4.5 with both and with all between. */
  --cold: light-dark(#ffffff, #171b22);
  --hot: light-dark(#5f97f5, #2f62c9);
}
h1 { font-size: 1.5rem; margin: 0 0 8px; }
h2 { font-size: 1.15rem; margin: 28px 0 8px; }
figure { margin: 16px 0 0; }
figcaption { color: var(--quiet); display: flex; align-items: center; gap: 8px; margin-bottom: 8px; }
.ramp { display: inline-flex; height: 14px; border-radius: 3px; overflow: hidden; }
.ramp i { width: 7px; height: 14px; }
.scroll { overflow-x: auto; background: var(--raised); border-radius: 8px; padding: 12px; }
svg { font: 12px system-ui, sans-serif; display: block; }
.axis { fill: var(--quiet); }
.value { fill: var(--text); }
.spread { stroke: var(--text); stroke-width: 2; opacity: 0.55; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: 6px; }
th, td { text-align: right; padding: 4px 12px 4px 0; font-weight: 400; }
thead th, tbody th, td span { color: var(--quiet); }
`;
