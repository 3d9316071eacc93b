import { usageError } from '../base/errors.js';
import { show } from '../base/json.js';
import { count, sum } from '../base/lists.js';
import type { ArrangementProblem } from './types.js';

/** More ranks than any machine has; a slip of the keyboard should not fill the memory. */
const MOST_RANKS = 1024;

/**
 * @throws SplitkvError `usage` for loads that aren't one number of at least 0 a layer and head, for numbers out of range, and for
 * a memory that can't hold every head once
 */
export function checkProblem(problem: ArrangementProblem): void {
  const { loads, ranks, copies, memory, batch, pipeline = 1 } = problem;
  const heads = loads[0]?.length ?? 0;
  if (heads === 0) throw usageError('loads: expected at least one layer with at least one head');
  for (const [layer, row] of loads.entries()) {
    if (row.length !== heads) {
      throw usageError(
        `loads: layer ${layer} has ${count(row.length, 'head')}, layer 0 has ${heads}; expected equally many`,
      );
    }
    const wrong = row.findIndex((load) => !(Number.isFinite(load) && load >= 0));
    if (wrong >= 0) {
      throw usageError(`loads: layer ${layer}, head ${wrong} is ${show(row[wrong])}; expected a number of at least 0`);
    }
  }
  if (!Number.isFinite(sum(loads.flat())))
    throw usageError('loads: they add up to more than a number holds; give them in a larger unit');
  checkWhole('ranks', ranks, 1, MOST_RANKS);
  checkWhole('pipeline', pipeline, 1, loads.length);
  if (ranks % pipeline !== 0) {
    throw usageError(`pipeline ${pipeline}: ${count(ranks, 'rank')} make no ${pipeline} stages of as many ranks`);
  }
  checkWhole('copies', copies ?? 0, 0);
  checkWhole('memory', memory ?? 1, 1);
  checkWhole('batch', batch ?? 1, 1);
  checkCosts(problem);
  if (memory === undefined || memory * ranks >= loads.length * heads) return;
  throw usageError(
    `memory ${memory}: ${count(ranks, 'rank')} of ${memory} hold ${memory * ranks} heads, but ${count(loads.length, 'layer')} ` +
      `of ${heads} are ${loads.length * heads}; give at least ${Math.ceil((loads.length * heads) / ranks)}, or more ranks`,
  );
}

function checkWhole(name: string, value: number, low: number, high = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= low && value <= high) return;
  const range = high === Number.MAX_SAFE_INTEGER ? `of at least ${low}` : `from ${low} to ${high}`;
  throw usageError(`${name} ${value}: expected a whole number ${range}`);
}

function checkCosts({ costs, ranks, memory }: ArrangementProblem): void {
  if (!costs) return;
  if (memory !== undefined) throw usageError(`memory ${memory} counts heads; beside costs give costs.memoryBytes`);
  const { secondsPerEntry, secondsPerHead, bytesPerHead = 0, bytesPerEntry = 0, memoryBytes } = costs;
  for (const [name, list] of Object.entries({ secondsPerEntry, secondsPerHead, memoryBytes })) {
    if (list === undefined) continue;
    if (list.length !== ranks)
      throw usageError(`costs.${name} has ${list.length} numbers; expected one per rank, ${ranks}`);
    const bad = list.find((value) => !(value >= 0));
    if (bad !== undefined) throw usageError(`costs.${name} has ${bad}; expected numbers from 0 on`);
  }
  for (const [name, value] of Object.entries({ bytesPerHead, bytesPerEntry })) {
    if (!(value >= 0 && value < Infinity)) throw usageError(`costs.${name} is ${value}; expected a number from 0 on`);
  }
}
