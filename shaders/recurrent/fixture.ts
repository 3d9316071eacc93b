import { INACTIVE } from '../../src/base/kv_units.js';

/** Rows of one sequence that follow each other in a step. */
export interface Run {
  readonly slot: number;
  /** Position of the first. */
  readonly start: number;
  readonly count: number;
}

/** Slots of the fixtures: each has its state at another place. */
export const SLOTS = 5;
export const PLACES = Uint32Array.from({ length: SLOTS }, (_, slot) => (slot * 3 + 1) % SLOTS);

/**
 * row_info of some runs, one after another; the rows behind them are inactive. Mixed rows: a slot's run that begins anew behind another
 * one's at the very next position, runs of one row, inactive rows in between.
 */
function runsOf(rows: number, oneRun: boolean): Run[] {
  if (oneRun) return [{ slot: 2, start: rows % 2 === 0 ? 0 : 7, count: Math.max(1, rows - 3) }];
  const runs: Run[] = [];
  let at = 0;
  for (let slot = 0; at < rows && slot < SLOTS; slot++) {
    const count = Math.min(rows - at, 1 + ((slot * 3) % 5));
    runs.push({ slot, start: slot === 0 ? 0 : slot === 3 ? 1 : slot * 7, count });
    at += count + (slot === 1 ? 1 : 0);
  }
  return runs;
}

/** vec2<u32> [rows]; where each run begins. */
export function rowInfoOf(
  rows: number,
  oneRun: boolean,
): { readonly rowInfo: Uint32Array; readonly runs: (Run & { first: number })[] } {
  const rowInfo = new Uint32Array(rows * 2).fill(INACTIVE);
  let first = 0;
  const runs = runsOf(rows, oneRun).map((run) => {
    const placed = { ...run, first };
    for (let i = 0; i < run.count; i++) rowInfo.set([run.start + i, run.slot], (first + i) * 2);
    first += run.count + (run.slot === 1 && !oneRun ? 1 : 0);
    return placed;
  });
  return { rowInfo, runs };
}
