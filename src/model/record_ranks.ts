import { reduceSegments } from '../../shaders/linear/reduce_segments/index.js';
import { alignUp } from '../base/math.js';
import type { Exchange, Region, Transfer } from '../distributed/communicator.js';
import type { Buffer, Device, Recorder, StepShape, Tensor } from '../gpu/index.js';
import type { CopyOwners } from '../placement/index.js';
import type { Plan, RankShare } from '../placement/plan.js';
import type { Role } from './roles.js';
import { runsOf } from './shape.js';
import type { StageTopology } from './topology.js';

/** Rows of a buffer that travel: the first `rows` of them. */
export const rowsOf = (buffer: Buffer, stride: number, rows: number, first = 0): Region => ({
  buffer,
  offset: first * stride * 4,
  size: rows * stride * 4,
});

/** f32 [parts][rows][stride]: pieces of a sum that ranks computed, each rank's own and those of the others. */
export interface Parts {
  readonly buffer: Buffer;
  readonly count: number;
  /** Rows there is room for. */
  readonly rows: number;
  /** Elements; a multiple of 64, so that every part may be bound by itself. */
  readonly stride: number;
  /** Number of the first part there is room for. */
  readonly first: number;
}

export function allocateParts(
  device: Pick<Device, 'createBuffer'>,
  role: Role,
  name: string,
  count: number,
  rows: number,
  width: number,
  first = 0,
): Parts {
  const stride = alignUp(width, 64);
  return { buffer: device.createBuffer(`${role} ${name}`, count * rows * stride * 4), count, rows, stride, first };
}

/** Parts from number `from` on, as a tensor that a kernel writes. */
export function partsFrom({ buffer, rows, stride, first }: Parts, from: number): Tensor {
  const offset = (from - first) * rows * stride * 4;
  return offset === 0 ? buffer : { buffer, offset, size: buffer.size - offset };
}

/** `rows` rows, from `firstRow` on, of the parts numbered [first, first + count). */
export function partRegions(parts: Parts, first: number, count: number, rows: number, firstRow = 0): Region[] {
  const { buffer, stride } = parts;
  const bytes = parts.rows * stride * 4;
  const at = (part: number): number => (first - parts.first + part) * bytes + firstRow * stride * 4;
  if (rows === parts.rows) return count === 0 ? [] : [{ buffer, offset: at(0), size: count * bytes }];
  return Array.from({ length: count }, (_, part) => ({ buffer, offset: at(part), size: rows * stride * 4 }));
}

/** Every weight group's segments go to the rank of each other group that works on the same rows. */
export function segmentTransfers(
  { share, peers }: StageTopology,
  parts: Parts,
  segmentsOf: (share: RankShare) => readonly number[],
  step: StepShape,
): Omit<Exchange, 'label'> {
  const regions = (of: RankShare): Region[] =>
    runsOf(segmentsOf(of)).flatMap(([first, end]) => partRegions(parts, first, end - first, step.rows));
  const others = peers.filter((peer) => peer !== share);
  const some = ({ regions: list }: Transfer): boolean => list.length > 0;
  return {
    sends: others.map(({ rank }): Transfer => ({ peer: rank, regions: regions(share) })).filter(some),
    receives: others.map((peer): Transfer => ({ peer: peer.rank, regions: regions(peer) })).filter(some),
  };
}

/**
 * o_proj's segments where heads are copied: a head's rows come from the one rank whose output of them counts, which sends them to all
 * others of the stage.
 */
export function headTransfers(
  { stage, share, peers }: StageTopology,
  plan: Plan,
  parts: Parts,
  owners: CopyOwners,
  { rows, slots }: StepShape,
): Omit<Exchange, 'label'> {
  const index = plan.stages.indexOf(stage);
  const slotOf = (row: number): number => (slots ? slots.first + (slots.same ? 0 : row) : 0);
  const byRank = new Map<number, Region[]>();
  const add = (rank: number, head: number, first: number, end: number): void => {
    const offset = (head * parts.rows + first) * parts.stride * 4;
    const region = { buffer: parts.buffer, offset, size: (end - first) * parts.stride * 4 };
    byRank.set(rank, [...(byRank.get(rank) ?? []), region]);
  };
  for (let head = 0; head < parts.count; head++) {
    const holders = peers.filter(({ heads }) => heads.includes(head));
    if (holders.length === 1) {
      add(holders[0]!.rank, head, 0, rows);
      continue;
    }
    for (let first = 0; first < rows;) {
      const home = owners.home(index, head, slotOf(first));
      let end = first + 1;
      while (end < rows && (slots?.same !== false || owners.home(index, head, slotOf(end)) === home)) end++;
      add(home, head, first, end);
      first = end;
    }
  }
  const others = peers.filter((peer) => peer !== share).map(({ rank }) => rank);
  const from = (rank: number): Region[] => byRank.get(rank) ?? [];
  return {
    sends: others.map((peer): Transfer => ({ peer, regions: from(share.rank) })),
    receives: others.map((peer): Transfer => ({ peer, regions: from(peer) })),
  };
}

/** Exchanges put into one hop. */
export const together = (...exchanges: readonly Omit<Exchange, 'label'>[]): Omit<Exchange, 'label'> => {
  const merge = (lists: readonly (readonly Transfer[])[]): Transfer[] => {
    const byPeer = new Map<number, Region[]>();
    for (const { peer, regions } of lists.flat()) byPeer.set(peer, [...(byPeer.get(peer) ?? []), ...regions]);
    return [...byPeer].map(([peer, regions]) => ({ peer, regions }));
  };
  return {
    sends: merge(exchanges.map(({ sends }) => sends)),
    receives: merge(exchanges.map(({ receives }) => receives)),
  };
};

/** Adds all parts up in order into `out`: the same bits as one rank that computes the whole sum. */
export function recordReduce(
  recorder: Recorder,
  parts: Parts,
  io: {
    readonly width: number;
    readonly bias?: Buffer | undefined;
    readonly out: Buffer;
    readonly outStride: number;
    readonly outScale?: number | undefined;
    readonly epilogue: 'none' | 'residual';
  },
): void {
  recorder.dispatch(
    reduceSegments,
    {
      rows: parts.rows,
      segmentCount: parts.count,
      outFeatures: io.width,
      inStride: parts.stride,
      outStride: io.outStride,
      ...(io.outScale !== undefined && { outScale: io.outScale }),
      bias: io.bias !== undefined,
      epilogue: io.epilogue,
    },
    { segments: parts.buffer, bias: io.bias, out: io.out },
  );
}
