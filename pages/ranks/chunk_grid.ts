import { CHUNK_TOKENS, MERGE_LANES } from '../../src/placement/index.js';
import { range, showList } from '../../src/base/lists.js';
import { make } from '../../src/app/shared/dom.js';
import { decoration } from '../shared/elements.js';
import { colourAs } from '../shared/rank_colour.js';
import type { ChunkCell } from './sequence_map.js';

interface Cell {
  readonly node: HTMLElement;
  readonly fills: readonly HTMLElement[];
}

/** The chunks of a sequence, one column a merge lane, each in the colours of the ranks that hold it, filled as far as it is written. */
export class ChunkGrid {
  #cells: readonly Cell[] = [];

  /** @param node an element that screen readers skip: a text beside it says the same */
  constructor(private readonly node: HTMLElement) {}

  /** Starts over: the ranks have changed. */
  clear(): void {
    this.#cells = [];
  }

  show(chunks: readonly ChunkCell[]): void {
    if (this.#cells.length !== chunks.length) {
      this.#cells = chunks.map(newCell);
      const heads = range(0, Math.min(MERGE_LANES, chunks.length)).map((lane) =>
        decoration('lane', lane === 0 ? 'lane 0' : String(lane)),
      );
      this.node.replaceChildren(...heads, ...this.#cells.map(({ node }) => node));
    }
    for (const [index, { tokens, active }] of chunks.entries()) {
      const { node, fills } = this.#cells[index]!;
      node.classList.toggle('active', active);
      for (const fill of fills) fill.style.inlineSize = `${(tokens / CHUNK_TOKENS) * 100}%`;
    }
  }
}

function newCell({ chunk, owners }: ChunkCell): Cell {
  const fills = owners.map(() => make('span', 'fill'));
  const bands = owners.map((rank, index) => {
    const band = make('span', 'band', fills[index]!);
    colourAs(band, rank);
    return band;
  });
  const name = make('span', 'chunk-name', `${chunk}`, make('small', '', `r${showList(owners)}`));
  return { node: make('span', 'chunk', ...bands, name), fills };
}
