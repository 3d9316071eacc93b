import { usageError } from '../../base/errors.js';
import type { Exchange, Region, Transfer } from '../communicator.js';

/** Who asks: a `Communicator` is one. */
export interface Rank {
  readonly rank: number;
  readonly worldSize: number;
}

/*
 * Each function says what one rank does in a collective: every rank of the group calls it with the same label and root, and
 * gives the result to its communicator. Parts may have different sizes and may be empty; what a rank sends another is as
 * many bytes as that one expects. A part of a rank that is already where it belongs isn't copied.
 */

/** Point to point: the regions, one after another, to `peer`. */
export const send = (label: string, peer: number, ...regions: readonly Region[]): Exchange => ({
  label,
  sends: [{ peer, regions }],
  receives: [],
});

export const receive = (label: string, peer: number, ...regions: readonly Region[]): Exchange => ({
  label,
  sends: [],
  receives: [{ peer, regions }],
});

/** The root's region to every other rank's. */
export function broadcast({ rank, worldSize }: Rank, label: string, root: number, region: Region): Exchange {
  checkRoot(label, root, worldSize);
  if (rank !== root) return receive(label, root, region);
  return { label, sends: peersOf(rank, worldSize).map((peer) => ({ peer, regions: [region] })), receives: [] };
}

/** Part r of the root goes to rank r's `mine`. @param parts by rank; read on the root only. */
export function scatter(
  { rank, worldSize }: Rank,
  label: string,
  root: number,
  parts: readonly Region[],
  mine: Region,
): Exchange {
  checkRoot(label, root, worldSize);
  if (rank !== root) return receive(label, root, mine);
  checkParts(label, parts, worldSize);
  const own = copyOwn(rank, parts[rank]!, mine);
  return { label, sends: [...toPeers(rank, parts), ...own.sends], receives: own.receives };
}

/** Rank r's `mine` goes to part r of the root. @param parts by rank; read on the root only. */
export function gather(
  { rank, worldSize }: Rank,
  label: string,
  root: number,
  mine: Region,
  parts: readonly Region[],
): Exchange {
  checkRoot(label, root, worldSize);
  if (rank !== root) return send(label, root, mine);
  checkParts(label, parts, worldSize);
  const own = copyOwn(rank, mine, parts[rank]!);
  return { label, sends: own.sends, receives: [...toPeers(rank, parts), ...own.receives] };
}

/** Rank r's `mine` goes to part r on every rank. @param parts by rank. */
export function allGather({ rank, worldSize }: Rank, label: string, mine: Region, parts: readonly Region[]): Exchange {
  checkParts(label, parts, worldSize);
  const own = copyOwn(rank, mine, parts[rank]!);
  return {
    label,
    sends: [...peersOf(rank, worldSize).map((peer) => ({ peer, regions: [mine] })), ...own.sends],
    receives: [...toPeers(rank, parts), ...own.receives],
  };
}

/** Part p of rank r's `parts` goes to part r of rank p's `into`. */
export function allToAll(
  { rank, worldSize }: Rank,
  label: string,
  parts: readonly Region[],
  into: readonly Region[],
): Exchange {
  checkParts(label, parts, worldSize);
  checkParts(label, into, worldSize);
  const own = copyOwn(rank, parts[rank]!, into[rank]!);
  return {
    label,
    sends: [...toPeers(rank, parts), ...own.sends],
    receives: [...toPeers(rank, into), ...own.receives],
  };
}

const peersOf = (rank: number, worldSize: number): number[] =>
  Array.from({ length: worldSize }, (_, peer) => peer).filter((peer) => peer !== rank);

const toPeers = (rank: number, parts: readonly Region[]): Transfer[] =>
  peersOf(rank, parts.length).map((peer) => ({ peer, regions: [parts[peer]!] }));

function copyOwn(rank: number, from: Region, to: Region): Pick<Exchange, 'sends' | 'receives'> {
  if (from.buffer === to.buffer && from.offset === to.offset && from.size === to.size) {
    return { sends: [], receives: [] };
  }
  return { sends: [{ peer: rank, regions: [from] }], receives: [{ peer: rank, regions: [to] }] };
}

/** @internal */
export function checkRoot(label: string, root: number, worldSize: number): void {
  if (!(Number.isInteger(root) && root >= 0 && root < worldSize)) {
    throw usageError(`${label}: root ${root}, but there are ranks 0 to ${worldSize - 1}`);
  }
}

function checkParts(label: string, parts: readonly Region[], worldSize: number): void {
  if (parts.length !== worldSize) {
    throw usageError(
      `${label}: ${parts.length} parts for ${worldSize} ranks; give one per rank, of size 0 where it has none`,
    );
  }
}
