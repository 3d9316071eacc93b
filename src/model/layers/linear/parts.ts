import { reduceSegments } from '../../../../shaders/linear/reduce_segments/index.js';
import { nth } from '../../../base/lists.js';
import { alignUp } from '../../../base/math.js';
import type { Region } from '../../../distributed/communicator.js';
import type { Buffer, Device, Tensor } from '../../../gpu/index.js';
import type { Owners, SegmentSum } from '../../../placement/index.js';
import type { Role } from '../roles.js';
import { runsOf } from '../../shape.js';
import type { RankRecorder, RegionsOf, World } from '../world.js';

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
  /** What each part is the sum of, where that isn't a segment. */
  readonly sums?: readonly SegmentSum[];
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

/** A sum's number among `all`, which is the number of its part. */
export const sumNumber = (all: readonly SegmentSum[], [first]: SegmentSum): number =>
  all.findIndex((each) => each[0] === first);

/** Where sums of a rank's rows lie that are exchanged (`segmentRoutes`); `parts` has those of `all`. */
export const segmentRegions =
  (world: World, role: Role, parts: Parts, all: readonly SegmentSum[]): RegionsOf =>
  ({ cargo }, _side, step) => {
    if (cargo.kind !== 'segments') return [];
    const rows = world.rowRange(role, cargo.group, step);
    return runsOf(cargo.sums.map((each) => sumNumber(all, each))).flatMap(([first, end]) =>
      partRegions(parts, first, end - first, rows.count, rows.first),
    );
  };

/**
 * As `segmentRegions`, of o_proj's segments where heads are copied: a head's rows come from the one rank whose output of them counts,
 * which sends them to all others of the stage.
 */
export const headRegions =
  (stage: number, parts: Parts, owners: Owners): RegionsOf =>
  ({ from, cargo }, _side, { rows: groups, slots = [0] }) => {
    if (cargo.kind !== 'segments') return [];
    const rows = nth(groups, cargo.group);
    const areSame = slots.length === 1;
    const isHome = (head: number, row: number): boolean =>
      owners.home(stage, head, nth(slots, areSame ? 0 : row)) === from;
    return cargo.sums.flatMap(([head]) => {
      const regions: Region[] = [];
      for (let first = 0; first < rows;) {
        const own = isHome(head, first);
        let end = first + 1;
        while (end < rows && (areSame || isHome(head, end) === own)) end++;
        const offset = (head * parts.rows + first) * parts.stride * 4;
        if (own) regions.push({ buffer: parts.buffer, offset, size: (end - first) * parts.stride * 4 });
        first = end;
      }
      return regions;
    });
  };

/** Adds parts up in a binary tree into `out`: all, with the bits of one rank that computes the whole sum, or `count` of them. */
export function recordReduce(
  recorder: RankRecorder,
  parts: Parts,
  io: {
    readonly width: number;
    readonly from?: number;
    readonly count?: number;
    readonly bias?: Buffer | undefined;
    readonly out: Tensor;
    readonly outStride: number;
    readonly outScale?: number | undefined;
    readonly epilogue: 'none' | 'residual';
  },
): void {
  recorder.dispatch(
    reduceSegments,
    {
      rows: parts.rows,
      segmentCount: io.count ?? parts.sums?.at(-1)?.[1] ?? parts.count,
      ...(parts.sums && { begins: parts.sums.map(([first]) => first) }),
      outFeatures: io.width,
      inStride: parts.stride,
      outStride: io.outStride,
      ...(io.outScale !== undefined && { outScale: io.outScale }),
      bias: io.bias !== undefined,
      epilogue: io.epilogue,
    },
    { segments: partsFrom(parts, io.from ?? parts.first), bias: io.bias, out: io.out },
  );
}
