import { formatBytes } from '../../src/base/math.js';
import { make, pair } from '../../src/app/shared/dom.js';
import { decoration } from '../shared/elements.js';
import type { Figure } from '../shared/figures.js';
import { colourAs } from '../shared/rank_colour.js';
import type { RankHoldings, Strip } from './rank_map.js';

/** One rank: what it holds of the model as strips of tiles with their words, its memory, its traffic. */
export class RankCard {
  readonly node: HTMLElement;
  /** Merge lanes of each stage that the rank works in. */
  readonly #lanes: HTMLElement[][] = [];
  readonly #traffic = make('dl', 'traffic');

  constructor(holdings: RankHoldings) {
    const { rank, adapter, weightBytes, kvBytes, samples, sharesWith, groups } = holdings;
    const title = make('h3', '', `Rank ${rank}`);
    if (samples) title.append(' ', make('small', '', 'samples'));
    if (sharesWith !== undefined) title.append(' ', make('small', '', 'virtual'));
    this.node = make(
      'li',
      'rank',
      title,
      make('p', 'adapter', sharesWith === undefined ? adapter : `${adapter}, the same as rank ${sharesWith}'s`),
      ...groups.map((strips) => make('dl', 'strips', ...strips.map((strip) => this.#strip(strip)))),
      make('dl', 'memory', pair('Weights', formatBytes(weightBytes)), pair('KV cache', formatBytes(kvBytes))),
      this.#traffic,
    );
    colourAs(this.node, rank);
  }

  #strip({ name, text, tiles, lanes }: Strip): HTMLElement {
    const nodes = tiles.map(({ size, held }) => {
      const node = make('span', held ? 'tile held' : 'tile');
      node.style.flexGrow = String(size);
      return node;
    });
    if (lanes) this.#lanes.push(nodes);
    return pair(name, text, decoration(lanes ? 'tiles lanes' : 'tiles', ...nodes));
  }

  showTraffic(figures: readonly Figure[]): void {
    this.#traffic.replaceChildren(...figures.map(([name, text]) => pair(name, text)));
  }

  /** @param tokens of the running sequence in each lane */
  showLanes(tokens: readonly number[]): void {
    for (const lanes of this.#lanes) {
      for (const [lane, node] of lanes.entries()) node.classList.toggle('lit', tokens[lane]! > 0);
    }
  }
}
