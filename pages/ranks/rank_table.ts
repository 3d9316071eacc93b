import { formatBytes } from '../../src/base/math.js';
import type { RunStats } from '../../src/index.js';
import { make } from '../../src/app/shared/dom.js';
import { rankTraffic } from '../shared/figures.js';
import type { RankHoldings } from './rank_map.js';

/** The map and the traffic of every rank as the rows of a table. */
export function fillRankTable(table: HTMLTableElement, ranks: readonly RankHoldings[], stats: RunStats): void {
  // Every rank has the strips of the others: they are the model's.
  const names = [...new Set(ranks.flatMap(({ groups }) => groups.flat().map(({ name }) => name)))];
  const traffic = ranks.map(({ rank }) => rankTraffic(stats, rank));
  const head = ['Rank', 'Adapter', 'Weights', 'KV memory', ...names, ...traffic[0]!.map(([name]) => name)];
  table.tHead!.replaceChildren(
    make(
      'tr',
      '',
      ...head.map((name) => {
        const cell = make('th', '', name);
        cell.scope = 'col';
        return cell;
      }),
    ),
  );
  table.tBodies[0]!.replaceChildren(
    ...ranks.map(({ rank, adapter, weightBytes, kvBytes, groups }) => {
      const held = names.map((name) =>
        groups
          .flat()
          .filter((strip) => strip.name === name)
          .map(({ text }) => text)
          .join('; '),
      );
      const label = make('th', '', String(rank));
      label.scope = 'row';
      const texts = [adapter, formatBytes(weightBytes), formatBytes(kvBytes), ...held];
      const numbers = traffic[rank]!.map(([, text]) => text);
      return make('tr', '', label, ...[...texts, ...numbers].map((text) => make('td', '', text)));
    }),
  );
}
