/** Rows that are kept of a request's text, the last ones: a head begins with so many at least, where there are. */
const MOST = 1024;

/** Final hidden states of a request's positions, from `first` on, of which the model's own head makes drafts. */
export class TrunkRows {
  first = 0;
  readonly #rows: Float32Array[] = [];

  /** The position behind the last one. */
  get end(): number {
    return this.first + this.#rows.length;
  }

  /** Positions from here on of a prompt are wanted. */
  firstOf(promptLength: number): number {
    return Math.max(0, promptLength - MOST);
  }

  /** One that is there already is the same; where some are missing before it, it is the first one. */
  take(position: number, row: Float32Array): void {
    if (position >= this.first && position < this.end) return;
    if (position !== this.end) {
      this.first = position;
      this.#rows.length = 0;
    }
    this.#rows.push(row);
    if (this.#rows.length < 2 * MOST) return;
    this.#rows.splice(0, MOST);
    this.first += MOST;
  }

  /** Those of positions [from, end), one behind the other. */
  joined(from: number, end: number): Float32Array {
    const rows = this.#rows.slice(from - this.first, end - this.first);
    const { length } = rows[0] ?? [];
    const all = new Float32Array(rows.length * length);
    for (const [at, row] of rows.entries()) all.set(row, at * length);
    return all;
  }
}
