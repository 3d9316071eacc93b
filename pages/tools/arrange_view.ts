import { type Arrangement, rankLoads, utilisation } from '../../src/arrangement/index.js';
import { make } from '../../src/app/shared/dom.js';
import { decoration } from '../shared/elements.js';
import { colourAs } from '../shared/rank_colour.js';

/** A row of the table: a placement's busiest ranks, and how much of the others' time that leaves unused. */
export function summaryRows(before: Arrangement, after: Arrangement): HTMLTableRowElement[] {
  const amount = (value: number): string => value.toLocaleString('en-US', { maximumFractionDigits: 1 });
  const row = (name: string, { makespan, utilisation: used, copies }: Arrangement): HTMLTableRowElement => {
    const heading = make('th', '', name);
    heading.scope = 'row';
    const cells = [amount(makespan), `${(100 * used).toFixed(1)}%`, String(copies)];
    return make('tr', '', heading, ...cells.map((text) => make('td', '', text)));
  };
  return [row('static', before), ...(after.mode === 'static' ? [] : [row(after.mode, after)])];
}

/** In words: how good it is, and how near to the best there is. */
export function verdict(before: Arrangement, after: Arrangement): string {
  const faster = before.makespan / after.makespan;
  const proof = after.optimal
    ? 'nothing better exists within these limits'
    : `at most ${(after.gap * 100).toPrecision(2)}% above the best there is within these limits`;
  return `${faster.toFixed(2)} times as fast as static, as attention goes; ${proof}.`;
}

/** For each layer a bar for each rank, before and after, made of its heads; the busiest rank of a layer fills the width. */
export function layerCharts(
  loads: readonly (readonly number[])[],
  before: Arrangement,
  after: Arrangement,
): HTMLElement[] {
  return loads.map((layer, index) => {
    const charts = [before, after].map(({ placement }) => {
      const heads = placement[index]!;
      const ranks = Math.max(...heads.flat().map(({ rank }) => rank)) + 1;
      return { heads, sums: rankLoads(layer, heads, ranks) };
    });
    const most = Math.max(...charts.flatMap(({ sums }) => sums));
    const figures = charts.map(({ heads, sums }, which) => {
      const used = utilisation([layer], sums.length, Math.max(...sums));
      const bars = sums.map((sum, rank) => {
        const pieces = heads.flatMap((copies, head) =>
          copies
            .filter((copy) => copy.rank === rank)
            .map(({ share }) => ({ head, share, width: (100 * layer[head]! * share) / most })),
        );
        const bar = decoration(
          'load',
          ...pieces.map(({ head, share, width }) => {
            const piece = make('span', share < 1 ? 'piece shared' : 'piece', width > 4 ? String(head) : '');
            piece.style.width = `${width}%`;
            piece.title = `head ${head}${share < 1 ? `, ${(100 * share).toFixed(0)}% of its requests` : ''}`;
            return piece;
          }),
        );
        const names = pieces.map(({ head, share }) => (share < 1 ? `${head} (${(100 * share).toFixed(0)}%)` : head));
        const line = make(
          'li',
          '',
          make('span', 'hidden', `Rank ${rank}: ${Math.round(sum)}, heads ${names.join(', ')}`),
          bar,
        );
        colourAs(line, rank);
        return line;
      });
      const list = make('ol', 'loads', ...bars);
      list.role = 'list';
      return make(
        'div',
        '',
        make('p', 'note', `${which === 0 ? 'static' : after.mode}: ${(100 * used).toFixed(0)}% used`),
        list,
      );
    });
    return make('section', 'layer', make('h3', '', `Layer ${index}`), make('div', 'pair', ...figures));
  });
}
