import { ceilDiv } from '../../src/base/math.js';
import { floatFromHalf, halfFromFloat } from '../linear/float16.js';
import { type KvType, scaleUnit } from './kv_cache.js';
import { latentKeyUnit, type LatentShape, latentUnit, latentWidth } from './latent_cache.js';

/** A cache's buffer on the host: f32 elements, or the words of packed ones. */
export type KvWords = Float32Array | Uint32Array | Int32Array;

/** Where a vector's unit (of 4 elements, or behind them of scales) lies in its buffer, in units: `keyUnit` and its like. */
export type UnitAt = (unit: number) => number;

const LARGEST_HALF = 65504;
const LARGEST_HALF_BITS = 0x7bff;
/** q8: how many scales of a block are tried, and how far apart their bits are. */
const SCALES = 8;
const SCALE_STEP = 8;
/** Elements of a q8 block. */
const BLOCK = 32;

const clampedHalf = (value: number): number => halfFromFloat(Math.max(-LARGEST_HALF, Math.min(LARGEST_HALF, value)));

/** Puts a vector into a cache as the kernels do (lib/kv_f16.wgsl, kv_q8.wgsl). */
export function writeKvVector(kvType: KvType, cache: KvWords, at: UnitAt, values: ArrayLike<number>): void {
  if (kvType === 'q8') {
    writeBytes(cache, at, values);
    return;
  }
  const pair = (i: number): number => (clampedHalf(values[i]!) | (clampedHalf(values[i + 1]!) << 16)) >>> 0;
  for (let i = 0; i < values.length; i += 4) {
    const to = at(i / 4);
    if (kvType === 'f32') {
      for (let lane = 0; lane < 4; lane++) cache[to * 4 + lane] = values[i + lane]!;
    } else {
      cache[to * 2] = pair(i);
      cache[to * 2 + 1] = pair(i + 2);
    }
  }
}

function writeBytes(cache: KvWords, at: UnitAt, values: ArrayLike<number>): void {
  const { length } = values;
  const scales = new Uint16Array(ceilDiv(length, 2 * BLOCK) * 2);
  for (let start = 0; start < length; start += BLOCK) {
    const end = Math.min(length, start + BLOCK);
    let largest = 0;
    for (let i = start; i < end; i++) largest = Math.max(largest, Math.abs(values[i]!));
    const bits = bestScale(values, start, end, scaleBits(largest));
    scales[start / BLOCK] = bits;
    const scale = floatFromHalf(bits);
    for (let i = start; i < end; i += 4) {
      let word = 0;
      for (let lane = 0; lane < 4; lane++) word |= (nearestByte(values[i + lane]!, scale) & 255) << (8 * lane);
      cache[at(i / 4)] = word >>> 0;
    }
  }
  for (let i = 0; i < scales.length; i += 2) {
    cache[at(scaleUnit(length, i * 8))] = (scales[i]! | (scales[i + 1]! << 16)) >>> 0;
  }
}

/** f16 of the least scale that takes `largest` to at most 127. */
function scaleBits(largest: number): number {
  const wanted = Math.min(largest / 127, LARGEST_HALF);
  const bits = halfFromFloat(wanted);
  return floatFromHalf(bits) < wanted ? bits + 1 : bits;
}

/** f16 of the first of the scales from `least` on, as the kernels try them (lib/kv_stage.wgsl), that misses least of values start to end. */
function bestScale(values: ArrayLike<number>, start: number, end: number, least: number): number {
  const missed = (bits: number): number => {
    const scale = floatFromHalf(bits);
    let squares = 0;
    for (let i = start; i < end; i++) squares += (values[i]! - nearestByte(values[i]!, scale) * scale) ** 2;
    return squares;
  };
  const choices = Array.from({ length: SCALES }, (_, i) => Math.min(least + SCALE_STEP * i, LARGEST_HALF_BITS));
  const squares = choices.map(missed);
  return choices[squares.indexOf(Math.min(...squares))]!;
}

/** Ties to even. */
function nearestByte(value: number, scale: number): number {
  const scaled = scale > 0 ? value / scale : 0;
  const below = Math.floor(scaled);
  const rest = scaled - below;
  const nearest = rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below;
  return Math.max(-127, Math.min(127, nearest));
}

/** A vector of so many elements as the kernels read it. */
export function readKvVector(kvType: KvType, cache: KvWords, at: UnitAt, elements: number): Float64Array {
  return Float64Array.from({ length: elements }, (_, i) => {
    const unit = at(i >> 2);
    const lane = i & 3;
    if (kvType === 'f32') return cache[unit * 4 + lane]!;
    if (kvType === 'f16') return floatFromHalf((cache[unit * 2 + (lane >> 1)]! >>> (16 * (lane & 1))) & 0xffff);
    return ((cache[unit]! << (24 - 8 * lane)) >> 24) * kvScale(cache, at, elements, i);
  });
}

/** Puts a token's elements (latentWidth of them) into a latent cache as the kernels do. */
export function writeLatent(
  shape: LatentShape,
  cache: KvWords,
  block: number,
  offset: number,
  values: ArrayLike<number>,
): void {
  const at = (unit: number): number => latentUnit(shape, block, unit, offset);
  if (shape.kvType !== 'q8') return writeKvVector(shape.kvType, cache, at, values);
  writeBytes(cache, at, Array.from(values).slice(0, shape.kvLoraRank));
  for (let i = shape.kvLoraRank; i < values.length; i += 2) {
    cache[at(keyWord(shape, i))] = (clampedHalf(values[i]!) | (clampedHalf(values[i + 1]!) << 16)) >>> 0;
  }
}

/** A token's elements as the kernels read them. */
export function readLatent(shape: LatentShape, cache: KvWords, block: number, offset: number): Float64Array {
  const at = (unit: number): number => latentUnit(shape, block, unit, offset);
  const { kvType, kvLoraRank } = shape;
  if (kvType !== 'q8') return readKvVector(kvType, cache, at, latentWidth(shape));
  const key = Array.from({ length: shape.qkRopeHeadDim }, (_, i) => {
    const word = cache[at(keyWord(shape, kvLoraRank + i))]!;
    return floatFromHalf((word >>> (16 * (i & 1))) & 0xffff);
  });
  return Float64Array.from([...readKvVector(kvType, cache, at, kvLoraRank), ...key]);
}

/** q8: the stored unit of a token with an element of its rotated key, of two. */
const keyWord = (shape: LatentShape, element: number): number =>
  latentKeyUnit(shape) + ((element - shape.kvLoraRank) >> 1);

/** The scale of an element of a q8 vector. */
export function kvScale(cache: KvWords, at: UnitAt, elements: number, element: number): number {
  const unit = element >> 2;
  return floatFromHalf((cache[at(scaleUnit(elements, unit))]! >>> (unit & 8 ? 16 : 0)) & 0xffff);
}
