import { spreadEvenly } from '../base/lists.js';
import { piecesBound } from './solvers/pieces_bound.js';
import { answer, type Answer, rankCopies, type Task } from './task.js';
import type { LayerPlacement } from './types.js';

/** Static head allocation, as tensor parallelism has it: equally many heads per rank, in their order, whatever their load. */
export function staticPlacement(numHeads: number, ranks: number): LayerPlacement {
  return spreadEvenly(numHeads, ranks).flatMap(([first, end], rank) =>
    Array.from({ length: end - first }, () => [{ rank, share: 1 }]),
  );
}

/** The static placement of the task's heads, layer by layer; undefined where it has no room. */
export function staticAnswer(task: Task): Answer | undefined {
  const ranks = task.room.length;
  const perLayer = task.loads.length / task.budgets.length;
  const heads = task.budgets.flatMap(() => staticPlacement(perLayer, ranks));
  if (rankCopies(heads, ranks).some((copies, rank) => copies > task.room[rank]!)) return undefined;
  return answer(task, heads, piecesBound(task.loads, ranks));
}
