import { reduceSegments } from '../../../../shaders/linear/reduce_segments/index.js';
import { nth } from '../../../base/lists.js';
import { alignUp } from '../../../base/math.js';
import type { Region } from '../../../distributed/communicator.js';
import type { Buffer, Device, Tensor } from '../../../gpu/index.js';
import type { Owners } from '../../../placement/index.js';
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

/** Where segments of a rank's rows lie that are exchanged (`segmentRoutes`). */
export const segmentRegions =
  (world: World, role: Role, parts: Parts): RegionsOf =>
  ({ cargo }, _side, step) => {
    if (cargo.kind !== 'segments') return [];
    const rows = world.rowRange(role, cargo.group, step);
    return runsOf(cargo.segments).flatMap(([first, end]) =>
      partRegions(parts, first, end - first, rows.count, rows.first),
    );
  };

/**
 * As `segmentRegions`, of o_proj's segments where heads are copied: a head's rows come from the one rank whose output of them counts,
 * which sends them to all others of the stage.
 */
export const headRegions =
  (stage: number, parts: Parts, owners: Owners): RegionsOf =>
  ({ from, cargo }, _side, { rows: groups, slots }) => {
    if (cargo.kind !== 'segments') return [];
    const rows = nth(groups, cargo.group);
    const slotOf = (row: number): number => (slots ? slots.first + (slots.same ? 0 : row) : 0);
    const isHome = (head: number, row: number): boolean => owners.home(stage, head, slotOf(row)) === from;
    return cargo.segments.flatMap((head) => {
      const regions: Region[] = [];
      for (let first = 0; first < rows;) {
        const own = isHome(head, first);
        let end = first + 1;
        while (end < rows && (slots?.same !== false || isHome(head, end) === own)) end++;
        const offset = (head * parts.rows + first) * parts.stride * 4;
        if (own) regions.push({ buffer: parts.buffer, offset, size: (end - first) * parts.stride * 4 });
        first = end;
      }
      return regions;
    });
  };

/** Adds all parts up in order into `out`: the same bits as one rank that computes the whole sum. */
export function recordReduce(
  recorder: RankRecorder,
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
