import type { Piece } from './pieces.js';
import type { Task } from './task.js';

/**
 * LPT: each piece in turn goes to the rank with the least load that has room and no piece of the same head.
 *
 * @returns the rank of each piece, or undefined where a copy finds no place
 */
export function placeLongestFirst(task: Task, pieces: readonly Piece[]): number[] | undefined {
  const load = task.room.map(() => 0);
  const room = [...task.room];
  const holds = task.room.map(() => new Set<number>());
  const out: number[] = [];
  for (const { head, size } of pieces) {
    let chosen = -1;
    for (const rank of load.keys()) {
      if (room[rank]! <= 0 || holds[rank]!.has(head)) continue;
      if (chosen < 0 || load[rank]! < load[chosen]!) chosen = rank;
    }
    if (chosen < 0) return undefined;
    load[chosen]! += size;
    room[chosen]!--;
    holds[chosen]!.add(head);
    out.push(chosen);
  }
  return out;
}
