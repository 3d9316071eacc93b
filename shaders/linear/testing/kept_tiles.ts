import { ceilDiv } from '../../../src/base/math.js';
import type { Random } from '../../../src/base/random.js';
import {
  blockElements,
  isKept,
  type KeptType,
  packedLayout,
  type PackedTiles,
  type PackedType,
  packTiles,
  unpackTiles,
} from '../pack.js';
import { packKeptRow, randomBlocks } from '../planes.js';

/** Random blocks of a file, row after row: values about `size`; some scales are subnormal, negative or zero. */
export function randomRows(type: KeptType, random: Random, n: number, width: number, size: number): Uint8Array {
  return randomBlocks(type, random, n * ceilDiv(width, blockElements(type)), size, () => {
    const draw = random.integer(16);
    return draw === 0 ? 0 : draw === 1 ? -1 : draw < 4 ? 0.01 : 0.5 + random.integer(256) / 256;
  });
}

/** A packed weight of random numbers about `size`, with the blocks of a type that is kept as a file has it. */
export function randomTiles(type: PackedType, random: Random, n: number, width: number, size: number): PackedTiles {
  if (!isKept(type)) return packTiles(type, random.normals(n * width, size), n, width);
  return keptTiles(type, randomRows(type, random, n, width, size), n, width);
}

export function keptTiles(type: KeptType, bytes: Uint8Array, n: number, width: number): Required<PackedTiles> {
  const layout = packedLayout(type, n, width);
  const weight = new Uint32Array(layout.weightBytes / 4);
  const scale = new Uint32Array(layout.scaleBytes / 4);
  for (let row = 0; row < n; row++) packKeptRow(type, { weight, scale }, row, bytes, (row * bytes.length) / n, width);
  return { weight, scale };
}

const signedByte = (word: number, byte: number): number => (word << (24 - 8 * byte)) >> 24;
const half = (words: Uint32Array, first: number, at: number): number =>
  (words[first + (at >> 1)]! >>> ((at & 1) * 16)) & 0xffff;
const wide = (bits: number): number => (1 + (bits & 1023) / 1024) * 2 ** ((bits >> 10) - 24);

/** Of element `k` of 256 in lane `lane`: its factor and summand, and the bits of its code above the nibble. */
const LINES: Readonly<
  Record<KeptType, (scale: Uint32Array, block: number, k: number, lane: number) => readonly [number, number, number]>
> = {
  q4_k(scale, block, k, lane) {
    const first = block * 160;
    const factors = half(scale, first, (k >> 5) * 32 + lane);
    const d = scale[first + 128 + lane]!;
    return [wide(d & 0xffff) * signedByte(factors, 0), wide(d >>> 16) * signedByte(factors, 1), 0];
  },
  q6_k(scale, block, k, lane) {
    const first = block * 672;
    const unit = (k >> 5) * 32 + lane;
    const high = (scale[first + unit * 2 + ((k >> 4) & 1)]! >>> ((k & 3) * 8 + ((k >> 2) & 3) * 2)) & 3;
    const d = new Float32Array(scale.buffer, scale.byteOffset)[first + 640 + lane]!;
    const factor = d * signedByte(half(scale, first + 512, unit), (k >> 4) & 1);
    return [factor, -32 * factor, high << 4];
  },
};

/** The f32 values of packed rows, n x inFeatures: `unpackTiles`, also of types that are kept as a file has them. */
export function tileValues(type: PackedType, packed: PackedTiles, n: number, width: number): Float32Array<ArrayBuffer> {
  if (!isKept(type)) return unpackTiles(type, packed, n, width);
  const block = blockElements(type);
  const blocks = ceilDiv(width, block);
  const out = new Float32Array(n * width);
  for (let row = 0; row < n; row++) {
    const [tile, lane] = [row >> 5, row % 32];
    for (let k = 0; k < width; k++) {
      const at = tile * blocks + Math.floor(k / block);
      const unit = (tile * blocks * block + k) >> 5;
      const word = packed.weight[unit * 128 + lane * 4 + ((k >> 3) & 3)]!;
      const nibble = (word >>> ((k & 3) * 8 + (k & 4))) & 15;
      const [factor, summand, high] = LINES[type](packed.scale!, at, k % block, lane);
      out[row * width + k] = (nibble | high) * factor + summand;
    }
  }
  return out;
}
