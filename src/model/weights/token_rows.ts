import { known } from '../../base/errors.js';
import { Kept } from '../../base/kept.js';
import type { TensorReader } from '../../loader/index.js';

/** Rows that are read at once, and kept for tokens that come again. */
const READS = 32;
const KEPT_ROWS = 1024;

export interface TokenTable {
  /** Of its tensor, [rows, columns]. */
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  /** What each number is multiplied by. */
  readonly scaleBy: number;
}

/**
 * A table that stays where the checkpoint is: of the tokens at hand, rows are read when a step needs them, as the file has them. So it
 * takes no GPU memory, and of the host's only what is kept of tokens that come often.
 */
export class TokenRows {
  readonly #kept = new Kept<Float32Array, number>(KEPT_ROWS);

  /** @throws SplitkvError `format` for a missing or misshapen tensor. */
  constructor(
    readonly reader: TensorReader,
    readonly table: TokenTable,
  ) {
    const { name, rows, columns } = table;
    reader.expectTensor(name, [rows, columns]);
  }

  /** f32 [tokens][columns]. @throws SplitkvError `io` where the checkpoint can no longer be read. */
  async read(tokens: Uint32Array, signal?: AbortSignal): Promise<Float32Array<ArrayBuffer>> {
    const { name, columns, scaleBy } = this.table;
    const rows = new Map<number, Float32Array>();
    const missing: number[] = [];
    for (const token of new Set(tokens)) {
      const kept = this.#kept.get(token);
      if (kept) rows.set(token, kept);
      else missing.push(token);
    }
    missing.sort((a, b) => a - b);
    for (let at = 0; at < missing.length; at += READS) {
      const read = missing.slice(at, at + READS).map(async (token) => {
        const row = await this.reader.readRows(name, token, token + 1, { signal });
        rows.set(
          token,
          row.map((value) => value * scaleBy),
        );
      });
      await Promise.all(read);
    }
    const out = new Float32Array(tokens.length * columns);
    for (const [index, token] of tokens.entries()) out.set(known(rows.get(token), 'row of a token'), index * columns);
    for (const [token, row] of rows) this.#kept.set(token, row, 1);
    return out;
  }

  /** Bytes that `store` reads. */
  get storedBytes(): number {
    return this.reader.source.flush ? this.reader.byteLength(this.table.name) : 0;
  }

  /** From a source that keeps what was read: reads all of it once, so that no token waits for the network later. */
  async store(onBytes: (bytes: number) => void, signal: AbortSignal | undefined): Promise<void> {
    if (this.storedBytes === 0) return;
    for await (const _ of this.reader.streamRows(this.table.name, { onBytes, signal }));
  }
}
