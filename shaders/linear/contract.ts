import { ceilDiv } from '../../src/base/math.js';
import type { DeviceTraits } from '../../src/gpu/device.js';
import treeSumWgsl from '../lib/tree_sum.wgsl?raw';
import contractSource from './contract.wgsl?raw';
import { type MatrixType, UNIT_ELEMENTS } from './pack.js';
import { treeLevels } from './segments.js';
import serialSource from './serial.wgsl?raw';

/** contract.wgsl and serial.wgsl, each with what adds up segments. */
export const contractWgsl = `${treeSumWgsl}\n${contractSource}`;
export const serialContractWgsl = `${treeSumWgsl}\n${serialSource}`;

/** Parts that a contraction is cut into on a hardware adapter, where it has fewer segments. */
const PARTS = 32;
/** Invocations of a workgroup: WebGPU's default limit. */
const THREADS = 256;
/** Outputs side by side, whose weights are 128 bytes in a row. */
const LANES = 8;
/** Workgroups that fill any GPU, so that a thread may take several outputs and read the activations once for them. */
const ENOUGH_WORKGROUPS = 512;
/** Sums of a thread with several outputs (rows x matrices x outputs): registers, and workgroup memory of 4 bytes a sum and thread. */
const MOST_SUMS = 8;
/** Of a tile's rows in workgroup memory: workgroups with more would leave few waves to a processor. */
const MOST_ROW_BYTES = 24 * 1024;
/** Units that a thread asks for before it uses the first. */
const MOST_LOADS = 4;

/** A contraction that is not cut. */
export const ONE_SEGMENT = { total: 1, count: 1 } as const;

export interface Contraction {
  readonly type: MatrixType;
  readonly outFeatures: number;
  /** Elements that this rank contracts over. */
  readonly inFeatures: number;
  /** Rows that would share one read of the weights; lowered where registers or workgroup memory are short. */
  readonly tileRows: number;
  /** 2: gate and up; 3: what a gated convolution takes. */
  readonly matrices: 1 | 2 | 3;
  /** The model's segments, and this rank's. */
  readonly segments: { readonly total: number; readonly count: number };
  /** A segment boundary cuts a unit. */
  readonly cut: boolean;
  /** Other workgroups of the grid for each tile of outputs: groups, rows x experts. Default 1. */
  readonly copies?: number;
  /** Bytes of workgroup memory that the kernel needs besides, and of each row of a tile. Default 0. */
  readonly staged?: number;
  readonly rowBytes?: number;
}

export interface ContractPlan {
  readonly tileRows: number;
  /** Workgroups along the outputs. */
  readonly tiles: number;
  /** Of workgroup memory. */
  readonly bytes: number;
  /** For contract.wgsl. */
  readonly constants: Readonly<Record<string, number | boolean>>;
}

/** Parts of one segment: they, and the order of every sum, follow from the model's number of segments alone. */
const subsOf = (total: number): number => Math.max(1, Math.floor(PARTS / total));

/**
 * What a stopwatch may choose beside the plan, best guesses first: 4 outputs of a thread; q4 unpacked by f16 (weights_wgsl.ts); both;
 * twice the outputs side by side, as many threads; other numbers of outputs of a thread, or of units asked for ahead: twice as many, or
 * half where that can't be; half the threads.
 */
export const CONTRACT_TUNINGS: readonly string[] = [
  'each 4',
  'halves',
  'each 4, halves',
  'lanes',
  'each',
  'loads',
  'threads 128',
];

/** Outputs of a thread. */
function tunedEach(tuning: string, usually: number, fits: (each: number) => boolean): number {
  if (tuning === 'each') return fits(2 * usually) && usually < 4 ? 2 * usually : Math.ceil(usually / 2);
  return tuning.startsWith('each 4') && fits(4) ? 4 : usually;
}

/** Whether so many rows of `rowBytes` each leave a workgroup enough of its memory. */
export const fitTile = (rows: number, rowBytes: number): boolean => rows * rowBytes <= MOST_ROW_BYTES;

/** How a hardware adapter's workgroups contract (contract.wgsl): everything but SUBS and PARTS changes no bit. */
export function planContract(contraction: Contraction, traits: DeviceTraits): ContractPlan {
  const { tuning = '' } = traits;
  const { type, outFeatures, inFeatures, matrices, segments, cut, copies = 1, staged = 0, rowBytes = 0 } = contraction;
  const subs = subsOf(segments.total);
  const parts = segments.count * subs;
  const usual = parts >= LANES ? LANES : parts >= LANES / 2 ? 2 * LANES : 4 * LANES;
  const limit = traits.limits.maxComputeWorkgroupStorageSize;
  // Several rows use so many registers that gate and up take turns.
  const passesOf = (rows: number): number => (rows > 1 ? matrices : 1);
  const bytesOf = (rows: number, outs: number): number =>
    staged + rows * rowBytes + (parts * rows * matrices * outs * 4) / passesOf(rows);
  const doubles = tuning === 'lanes' && 2 * usual <= 4 * LANES && bytesOf(1, 2 * usual) <= limit;
  const lanes = doubles ? 2 * usual : usual;
  const slices = Math.min(parts, (tuning === 'threads 128' ? 128 : THREADS) / lanes);
  const bytes = (rows: number, each: number): number => bytesOf(rows, each * lanes);
  let { tileRows } = contraction;
  while (tileRows > 1 && (bytes(tileRows, 1) > limit || !fitTile(tileRows, rowBytes))) tileRows /= 2;
  const fits = (each: number): boolean =>
    lanes * each <= 32 && tileRows * matrices * each <= MOST_SUMS && bytes(tileRows, each) <= limit;
  const pays = (each: number): boolean =>
    fits(each) && ceilDiv(outFeatures, lanes * each) * copies >= ENOUGH_WORKGROUPS;
  const usually = pays(4) ? 4 : pays(2) ? 2 : 1;
  const each = tunedEach(tuning, usually, fits);
  const units = ceilDiv(ceilDiv(inFeatures, UNIT_ELEMENTS[type]), parts);
  const passes = passesOf(tileRows);
  const loads = Math.floor((traits.unroll ? MOST_LOADS : 1) / ((each * matrices * Math.ceil(tileRows / 2)) / passes));
  const ahead = Math.max(1, Math.min(units, loads));
  const otherwise = 2 * ahead <= units ? 2 * ahead : Math.ceil(ahead / 2);
  const unroll = tuning === 'loads' ? otherwise : ahead;
  return {
    tileRows,
    tiles: ceilDiv(outFeatures, lanes * each),
    bytes: bytes(tileRows, each),
    constants: {
      TILE_ROWS: tileRows,
      MATRICES: matrices,
      PASSES: passes,
      LANES: lanes,
      EACH: each,
      SLICES: slices,
      SUBS: subs,
      PARTS: parts,
      UNROLL: unroll,
      UNROLLED: traits.unroll,
      CUT: cut,
      TREE_LEVELS: treeLevels('contract', segments.count),
    },
  };
}
