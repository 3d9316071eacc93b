import type { CompressionResult } from './compression_suite.js';

const PANEL = { width: 400, left: 52, right: 16, top: 40, height: 220 };
const BOTTOM = 86;
const COLOURS: Readonly<Record<string, string>> = { snap: 'var(--snap)', ada: 'var(--ada)', static: 'var(--static)' };
const DASHES = ['', '6 4', '2 3'];

interface Line {
  readonly policy: string;
  /** Window and kernel. */
  readonly recipe: string;
  readonly points: readonly { readonly budget: number; readonly share: number; readonly told: string }[];
}

/**
 * Right answers against the budget: a panel for each length, a colour for each policy, a kind of line for each window and kernel. It
 * follows the reader's colour scheme.
 */
export function compressionSvg(results: readonly CompressionResult[]): string {
  const contexts = [...new Set(results.map(({ context }) => context))].toSorted((a, b) => a - b);
  const recipes = [...new Set(results.map(recipeOf))];
  const budgets = [...new Set(results.map(({ budget }) => budget))].toSorted((a, b) => a - b);
  const panels = contexts.map((context, at) => {
    const own = results.filter((result) => result.context === context);
    const lines = recipes.flatMap((recipe) => linesOf(own, recipe));
    return `<g transform="translate(${at * PANEL.width} 0)">${panel(context, budgets, lines, recipes)}</g>`;
  });
  const [width, height] = [contexts.length * PANEL.width, PANEL.top + PANEL.height + BOTTOM];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="Right answers against the KV budget; the numbers are in the table">
<style>${STYLE}</style>
<rect width="${width}" height="${height}" fill="var(--ground)"/>
${panels.join('\n')}
${legend(recipes, height)}
</svg>
`;
}

const recipeOf = ({ window, kernel }: CompressionResult): string => `window ${window}, kernel ${kernel}`;

function linesOf(results: readonly CompressionResult[], recipe: string): Line[] {
  return Object.keys(COLOURS).flatMap((policy) => {
    const points = results
      .filter((result) => recipeOf(result) === recipe && (result.policy === policy || result.policy === 'none'))
      .map(({ budget, right, asked }) => ({
        budget,
        share: right / asked,
        told: `${policy}, ${recipe}, budget ${100 * budget}%: ${right} of ${asked}`,
      }))
      .toSorted((a, b) => a.budget - b.budget);
    return points.length === 0 ? [] : [{ policy, recipe, points }];
  });
}

function panel(
  context: number,
  budgets: readonly number[],
  lines: readonly Line[],
  recipes: readonly string[],
): string {
  const { width, left, right, top, height } = PANEL;
  const [low, high] = [Math.log(budgets[0]!), Math.log(budgets.at(-1)!)];
  const x = (budget: number): number =>
    left + 14 + ((width - left - right - 28) * (Math.log(budget) - low)) / (high - low);
  const y = (share: number): number => top + height * (1 - share);
  const grid = [0, 0.25, 0.5, 0.75, 1].map(
    (share) =>
      `<path class="grid" d="M${left} ${y(share)}H${width - right}"/><text x="${left - 6}" y="${y(share) + 4}" text-anchor="end">${100 * share}%</text>`,
  );
  const ticks = budgets.map(
    (budget) =>
      `<text x="${x(budget).toFixed(1)}" y="${top + height + 18}" text-anchor="middle">${100 * budget}%</text>`,
  );
  const drawn = lines.map(({ policy, recipe, points }) => {
    // Beside each other, so that equal answers hide none.
    const aside = 4 * (Object.keys(COLOURS).indexOf(policy) - 1);
    const at = points.map(({ budget, share }) => `${(x(budget) + aside).toFixed(1)} ${y(share).toFixed(1)}`);
    const dots = points.map(
      ({ budget, share, told }) =>
        `<circle cx="${(x(budget) + aside).toFixed(1)}" cy="${y(share).toFixed(1)}" r="3.5"><title>${told}</title></circle>`,
    );
    const dash = DASHES[recipes.indexOf(recipe) % DASHES.length]!;
    return `<g style="stroke:${COLOURS[policy]};fill:${COLOURS[policy]}"><path d="M${at.join('L')}" fill="none" stroke-width="2" stroke-dasharray="${dash}"/>${dots.join('')}</g>`;
  });
  return `<text class="title" x="${left}" y="22">prompts of about ${context} tokens</text>${grid.join('')}${ticks.join('')}<text x="${(left + width - right) / 2}" y="${top + height + 36}" text-anchor="middle">KV budget</text>${drawn.join('')}`;
}

function legend(recipes: readonly string[], height: number): string {
  const policies = Object.entries(COLOURS).map(
    ([policy, colour], i) =>
      `<circle cx="${PANEL.left + 6 + i * 90}" cy="${height - 20}" r="4" style="fill:${colour}"/><text x="${PANEL.left + 16 + i * 90}" y="${height - 16}">${policy}</text>`,
  );
  const kinds = recipes.map((recipe, i) => {
    const from = PANEL.left + 290 + i * 190;
    return `<path class="sample" d="M${from} ${height - 20}h36" stroke-dasharray="${DASHES[i % DASHES.length]}"/><text x="${from + 42}" y="${height - 16}">${recipe}</text>`;
  });
  return [...policies, ...kinds].join('');
}

const STYLE = `
svg { --ground: #ffffff; --text: #3d444d; --grid: #d8dde3; --snap: #1d5fd1; --ada: #b45309; --static: #15803d; font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #14171c; --text: #c4ccd6; --grid: #333b47; --snap: #6ea8fe; --ada: #f0a35c; --static: #5ccb84; }
}
text { fill: var(--text); }
.title { font-size: 14px; font-weight: 600; }
.grid { stroke: var(--grid); fill: none; }
.sample { stroke: var(--text); stroke-width: 2; fill: none; }
`;
