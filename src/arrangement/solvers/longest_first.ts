import type { Bins } from './improve.js';
import type { Piece } from './pieces.js';

/**
 * LPT: each piece in turn goes where it ends first, of the ranks that have room and no piece of the same head.
 *
 * @returns the rank of each piece, or undefined where a copy finds no place
 */
export function placeLongestFirst({ room, base, speed }: Bins, pieces: readonly Piece[]): number[] | undefined {
  const load = [...base];
  const left = [...room];
  const holds = room.map(() => new Set<number>());
  const out: number[] = [];
  for (const { head, size } of pieces) {
    let chosen = -1;
    let earliest = Infinity;
    for (const rank of room.keys()) {
      const end = (load[rank]! + size) / speed[rank]!;
      if (left[rank]! > 0 && !holds[rank]!.has(head) && end < earliest) [chosen, earliest] = [rank, end];
    }
    if (chosen < 0) return undefined;
    load[chosen]! += size;
    left[chosen]!--;
    holds[chosen]!.add(head);
    out.push(chosen);
  }
  return out;
}
