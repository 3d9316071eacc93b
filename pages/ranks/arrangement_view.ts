import type { HeadTile, LayerMap } from './arrangement_map.js';
import { wholeUtilisation } from './arrangement_map.js';
import { make } from '../../src/app/shared/dom.js';
import { decoration } from '../shared/elements.js';
import { colourAs } from '../shared/rank_colour.js';

const percent = (part: number): string => `${(part * 100).toFixed(0)}%`;

/**
 * Heads on ranks, a layer at a time: a column for each rank, a tile for each kv head as high as what it costs, copies of a head linked.
 * A row of buttons chooses the layer and shows how well each balances.
 */
export class ArrangementView {
  readonly node: HTMLElement;
  readonly #summary = make('p', 'note');
  readonly #layers = make('div', 'arrangement-layers');
  readonly #columns = make('ol', 'arrangement-ranks');
  readonly #links = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  readonly #board: HTMLElement;
  #maps: readonly LayerMap[] = [];
  #chosen = 0;

  constructor() {
    this.#layers.role = 'group';
    this.#layers.ariaLabel = 'Layer';
    this.#links.classList.add('arrangement-links');
    this.#links.ariaHidden = 'true';
    this.#board = make('div', 'arrangement-board', this.#columns, this.#links);
    const scroll = make('div', 'arrangement-scroll', this.#board);
    scroll.role = 'region';
    scroll.ariaLabel = 'Heads by rank';
    scroll.tabIndex = 0;
    this.node = make('section', 'arrangement', this.#summary, this.#layers, scroll);
    // Links follow the tiles wherever the layout puts them.
    new ResizeObserver(() => this.#link()).observe(this.#board);
  }

  /** @param known the loads are measured, not all alike */
  show(maps: readonly LayerMap[], known: boolean): void {
    this.#maps = maps;
    const copies = maps.reduce(
      (sum, { ranks }) => sum + ranks.flat().filter((tile) => tile.copies.length > 0).length,
      0,
    );
    this.#summary.textContent =
      `Attention keeps ranks busy ${percent(wholeUtilisation(maps))} of the time` +
      (known ? '' : ', if every head costs the same') +
      (copies > 0 ? `; ${copies} tiles are copies, joined by lines.` : '.');
    this.#layers.replaceChildren(...maps.map((map) => this.#layerButton(map)));
    this.choose(Math.min(this.#chosen, maps.length - 1));
  }

  choose(layer: number): void {
    this.#chosen = layer;
    for (const [index, button] of [...this.#layers.children].entries()) button.ariaPressed = String(index === layer);
    const map = this.#maps[layer]!;
    this.#columns.replaceChildren(...map.ranks.map((tiles, rank) => column(map, tiles, rank)));
    this.#link();
  }

  #layerButton({ layer, utilisation }: LayerMap): HTMLButtonElement {
    const bar = decoration('arrangement-bar');
    bar.style.blockSize = percent(utilisation);
    const button = make('button', '', bar, make('span', '', String(layer)));
    button.type = 'button';
    button.title = `Layer ${layer}: busy ${percent(utilisation)}`;
    button.ariaLabel = button.title;
    button.addEventListener('click', () => this.choose(layer));
    return button;
  }

  /** A line between neighbouring copies of a head. */
  #link(): void {
    const frame = this.#board.getBoundingClientRect();
    this.#links.setAttribute('viewBox', `0 0 ${frame.width} ${frame.height}`);
    const byHead = new Map<string, DOMRect[]>();
    for (const tile of this.#columns.querySelectorAll<HTMLElement>('[data-copied]')) {
      const head = tile.dataset['copied']!;
      byHead.set(head, [...(byHead.get(head) ?? []), tile.getBoundingClientRect()]);
    }
    const paths = [...byHead.values()].flatMap((tiles) =>
      tiles.slice(1).map((to, index) => curve(tiles[index]!, to, frame)),
    );
    this.#links.replaceChildren(...paths);
  }
}

function column(map: LayerMap, tiles: readonly HeadTile[], rank: number): HTMLLIElement {
  const load = map.loads[rank]!;
  const busy = map.busiest > 0 ? load / map.busiest : 0;
  const stack = make('ul', 'arrangement-stack', ...tiles.map((tile) => headTile(tile, map.busiest)));
  const item = make(
    'li',
    'arrangement-rank',
    make('h4', '', `Rank ${rank}`),
    stack,
    make('p', 'note', `busy ${percent(busy)}`),
  );
  colourAs(item, rank);
  return item;
}

function headTile({ head, load, share, copies }: HeadTile, busiest: number): HTMLLIElement {
  const part = copies.length === 0 ? '' : ` ${percent(share)}`;
  const tile = make('li', 'arrangement-head', `${head}${part}`);
  tile.style.flexBasis = percent(busiest > 0 ? load / busiest : 0);
  const shared = copies.length === 0 ? '' : `, ${percent(share)} of it, also on rank ${copies.join(' and ')}`;
  tile.title = `kv head ${head}: load ${Number(load.toPrecision(4))}${shared}`;
  if (copies.length > 0) tile.dataset['copied'] = String(head);
  return tile;
}

function curve(from: DOMRect, to: DOMRect, frame: DOMRect): SVGPathElement {
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  const [x1, x2] = [from.right - frame.left, to.left - frame.left];
  const [y1, y2] = [from, to].map(({ top, height }) => top + height / 2 - frame.top) as [number, number];
  const middle = (x1 + x2) / 2;
  path.setAttribute('d', `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`);
  return path;
}
