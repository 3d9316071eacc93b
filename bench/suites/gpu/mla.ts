import { attentionPrefill } from '../../../shaders/attention/attention_prefill/index.js';
import { mlaPrefill } from '../../../shaders/attention/mla_prefill/index.js';
import { linearGrouped } from '../../../shaders/linear/linear_grouped/index.js';
import { linearTiled } from '../../../shaders/linear/linear_tiled/index.js';
import { ceilDiv } from '../../../src/base/math.js';
import { type Buffer, Recorder } from '../../../src/gpu/index.js';
import type { GpuBench, GpuPart } from '../gpu.js';
import { repeated, type Timed, timeInTurns } from './kernels.js';

/** Widths of latent attention. */
export interface LatentWidths {
  readonly heads: number;
  readonly rank: number;
  readonly nope: number;
  readonly rope: number;
  readonly v: number;
}

export const DEEPSEEK_V2_LITE: LatentWidths = { heads: 16, rank: 512, nope: 128, rope: 64, v: 128 };
const QUICK: LatentWidths = { heads: 4, rank: 64, nope: 32, rope: 16, v: 32 };

/**
 * Multiply-adds of a layer for `rows` prompt rows behind `before` tokens, from q to attention's output a head. Absorbed: two
 * projections a row, and pairs of rows and keys as wide as the latent. Expanded: a projection a key, every token before anew,
 * as only latents are kept; narrow pairs.
 */
export function promptMultiplyAdds(
  { heads, rank, nope, rope, v }: LatentWidths,
  rows: number,
  before: number,
): { readonly absorbed: number; readonly expanded: number } {
  const pairs = rows * before + (rows * (rows + 1)) / 2;
  const projection = rank * (nope + v);
  return {
    absorbed: heads * (rows * projection + pairs * (rank + rope + rank)),
    expanded: heads * ((before + rows) * projection + pairs * (nope + rope + v)),
  };
}

/**
 * Rows of a step from which expanding takes fewer multiply-adds behind a long context. A form's bits are its own, and a prompt's
 * may not follow from how it is cut, so a model would have to expand in steps of every size: it should where this is 1. It never
 * is, as a key's projection, R (nope + v), is more than the 2 R - nope - v that a pair saves: prompts are absorbed.
 */
export function rowsToExpand({ rank, nope, rope, v }: LatentWidths): number {
  const saved = rank + rope + rank - (nope + rope + v);
  return saved <= 0 ? Infinity : Math.ceil((rank * (nope + v)) / saved);
}

const BLOCK = 64;
const BYTES = 65536;

/** Both forms in turns, each for every number of rows, behind `before` tokens. */
async function timeForms(
  { device, row, isLate }: GpuBench,
  widths: LatentWidths,
  before: number,
  rowCounts: readonly number[],
): Promise<void> {
  const { heads, rank, nope, rope, v } = widths;
  const rows = rowCounts.at(-1)!;
  const tokens = before + rows;
  const maxChunks = ceilDiv(tokens, 256);
  const lanes = Math.min(8, maxChunks);
  const width = rank + rope;
  const keyDim = nope + rope;
  const expandedWidth = heads * (nope + v);
  const tableStride = ceilDiv(tokens, BLOCK);
  const owned: Buffer[] = [];
  const own = (buffer: Buffer): Buffer => {
    owned.push(buffer);
    return buffer;
  };
  const someFloats = Float32Array.from({ length: BYTES / 4 }, (_, i) => ((i * 37) % 97) / 97 - 0.5);
  // f16 between 0.125 and 0.25, of either sign.
  const someHalves = Uint16Array.from({ length: BYTES / 2 }, (_, i) => (0x3000 | ((i * 37) % 1021)) ^ ((i & 1) << 15));
  const filled = (
    label: string,
    array: Float32Array<ArrayBuffer> | Uint16Array<ArrayBuffer>,
    length: number,
  ): Buffer => {
    const bytes = length * array.BYTES_PER_ELEMENT;
    const words = new Uint32Array(array.buffer, 0, Math.min(BYTES, ceilDiv(bytes, 4) * 4) / 4);
    return own(repeated(device, label, words, ceilDiv(bytes, 4) * 4));
  };
  const floats = (label: string, length: number): Buffer => filled(label, someFloats, length);
  const halves = (label: string, length: number): Buffer => filled(label, someHalves, length);
  const output = (label: string, length: number): Buffer => own(device.createBuffer(label, length * 4));
  const words = (label: string, length: number, word: (i: number) => number): Buffer => {
    const array = Uint32Array.from({ length }, (_, i) => word(i));
    return own(repeated(device, label, array, array.byteLength));
  };
  const record = (label: string, body: (recorder: Recorder) => void) => {
    const recorder = new Recorder(device, label);
    body(recorder);
    return recorder.finish();
  };
  const programs = await device.checked('preparing to measure', () => {
    const shared = {
      row_info: words('row_info', rows * 2, (i) => (i % 2 === 0 ? before + i / 2 : 0)),
      block_table: words('block_table', tableStride, (i) => i),
      partial_o: output('partial_o', rows * heads * lanes * Math.max(rank, keyDim)),
      partial_ml: output('partial_ml', rows * heads * lanes * 2),
    };
    const common = {
      rows,
      heads,
      maxChunks,
      lanes,
      kvType: 'f16',
      block: BLOCK,
      tableStride,
      scale: keyDim ** -0.5,
    } as const;
    const grouped = { rows, tileRows: 8, groups: heads, type: 'f16', xOffset: 0, outOffset: 0 } as const;
    const q = floats('q', rows * heads * keyDim);
    const qAbsorbed = floats('q_abs', rows * heads * width);
    const absorb = record('absorb', (recorder) => {
      recorder.dispatch(
        linearGrouped,
        {
          ...grouped,
          inFeatures: nope,
          outFeatures: rank,
          xStride: heads * keyDim,
          xGroupStride: keyDim,
          outStride: heads * width,
          outGroupStride: width,
        },
        { x: q, weight: halves('w_uk', heads * rank * nope), out: qAbsorbed },
      );
      recorder.dispatch(
        linearGrouped,
        {
          ...grouped,
          inFeatures: rank,
          outFeatures: v,
          xStride: heads * rank,
          xGroupStride: rank,
          outStride: heads * v,
          outGroupStride: v,
        },
        {
          x: floats('latent out', rows * heads * rank),
          weight: halves('w_uv', heads * rank * v),
          out: output('attended', rows * heads * v),
        },
      );
    });
    const latent = record('mla_prefill', (recorder) =>
      recorder.dispatch(
        mlaPrefill,
        { ...common, kvLoraRank: rank, qkRopeHeadDim: rope, qStride: heads * width },
        { ...shared, q_abs: qAbsorbed, latent_cache: halves('latent', tableStride * BLOCK * width) },
      ),
    );
    const expand = record('expand', (recorder) =>
      recorder.dispatch(
        linearTiled,
        {
          rows: tokens,
          inFeatures: rank,
          outFeatures: expandedWidth,
          type: 'f16',
          segments: { total: 1, align: 32 },
          bias: false,
          xStride: rank,
          outStride: expandedWidth,
          epilogue: 'none',
        },
        {
          x: floats('latents', tokens * rank),
          weight: halves('kv_b', expandedWidth * rank),
          out: output('expanded', tokens * expandedWidth),
        },
      ),
    );
    const cache = tableStride * BLOCK * heads * keyDim;
    const plain = record('attention_prefill', (recorder) =>
      recorder.dispatch(
        attentionPrefill,
        { ...common, kvHeads: heads, headDim: keyDim, qStride: heads * keyDim },
        { ...shared, q, k_cache: halves('k', cache), v_cache: halves('v', cache) },
      ),
    );
    return { absorb, latent, expand, plain };
  });
  try {
    for (const count of rowCounts) {
      if (isLate()) return;
      const step = { rows: [count], chunks: ceilDiv(before + count, 256) };
      const timed: Timed[] = [
        { program: programs.absorb, step, count: 1 },
        { program: programs.latent, step, count: 1 },
        { program: programs.expand, step: { ...step, rows: [before + count] }, count: 1 },
        { program: programs.plain, step, count: 1 },
      ];
      const [absorb, latent, expand, wide] = await timeInTurns(device, timed);
      // attention_prefill's values are as wide as its keys.
      const plain = (wide! * (keyDim + v)) / (2 * keyDim);
      const counted = promptMultiplyAdds(widths, count, before);
      row({
        'rank, nope + rope, v': `${rank}, ${nope} + ${rope}, ${v}`,
        heads,
        rows: count,
        'tokens before': before,
        'projections us': absorb!,
        'mla_prefill us': latent!,
        'expansion us': expand!,
        'attention us': plain,
        'expanded / absorbed': (expand! + plain) / (absorb! + latent!),
        counted: counted.expanded / counted.absorbed,
      });
    }
  } finally {
    for (const program of Object.values(programs)) program.dispose();
    for (const buffer of owned) buffer.dispose();
  }
}

export const mlaForms: GpuPart = {
  name: 'mla forms',
  title: 'Latent attention of prompt rows, absorbed against expanded (without its append; docs/mla.md)',
  seconds: 30,
  async run(bench) {
    const { quick, isLate, hooks } = bench;
    for (const before of quick ? [0, 256] : [0, 2048, 8192]) {
      if (isLate()) return;
      hooks.onProgress(`prompt rows in both forms behind ${before} tokens`);
      await timeForms(bench, quick ? QUICK : DEEPSEEK_V2_LITE, before, quick ? [16, 64] : [16, 64, 256, 512]);
    }
  },
};
