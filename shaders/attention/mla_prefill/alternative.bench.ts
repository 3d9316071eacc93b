import { describe, test } from 'vitest';
import { ceilDiv } from '../../../src/base/math.js';
import { type Buffer, type Device, Recorder } from '../../../src/gpu/index.js';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { linearGrouped } from '../../linear/linear_grouped/index.js';
import { linearTiled } from '../../linear/linear_tiled/index.js';
import { attentionPrefill } from '../attention_prefill/index.js';
import { mlaPrefill } from './index.js';

// Prompt rows, absorbed (absorb, mla_prefill, up) against expanded: k_nope and v of every cached token by kv_b_proj into a plain
// K/V cache, then attention_prefill. attention_prefill has one head_dim for K and V: its time is scaled by (nope + rope + v) to
// twice (nope + rope). The append to the scratch cache is left out (in favour of expanding). Both sides are proportional to the
// heads (a multiple of 4: an invocation on software adapters takes 4), so few heads stand for all.
const ROWS = 512;
const BLOCK = 64;
const SHAPES = [
  { heads: 8, rank: 64, nope: 32, rope: 16, v: 32 },
  { heads: 4, rank: 512, nope: 128, rope: 64, v: 128 },
];

type Shape = (typeof SHAPES)[number];

async function measure(device: Device, { heads, rank, nope, rope, v }: Shape, before: number): Promise<string> {
  const tokens = before + ROWS;
  const maxChunks = ceilDiv(tokens, 256);
  const lanes = Math.min(8, maxChunks);
  const width = rank + rope;
  const keyDim = nope + rope;
  const expanded = heads * (nope + v);
  const buffers: Buffer[] = [];
  const make = (name: string, bytes: number, word?: number): Buffer => {
    const buffer = device.createBuffer(name, bytes);
    if (word !== undefined) device.write(buffer, 0, new Uint32Array(bytes / 4).fill(word));
    buffers.push(buffer);
    return buffer;
  };
  // 0.125 as f32, 0.25 twice as f16.
  const floats = (name: string, length: number): Buffer => make(name, length * 4, 0x3e000000);
  const halves = (name: string, length: number): Buffer => make(name, length * 2, 0x34003400);
  const rowInfo = make('row_info', ROWS * 8);
  device.write(
    rowInfo,
    0,
    Uint32Array.from({ length: ROWS * 2 }, (_, i) => (i % 2 === 0 ? before + i / 2 : 0)),
  );
  const tableStride = ceilDiv(tokens, BLOCK);
  const table = make('block_table', tableStride * 4);
  device.write(
    table,
    0,
    Uint32Array.from({ length: tableStride }, (_, i) => i),
  );
  const shared = {
    row_info: rowInfo,
    block_table: table,
    partial_o: floats('partial_o', ROWS * heads * lanes * Math.max(rank, keyDim)),
    partial_ml: floats('partial_ml', ROWS * heads * lanes * 2),
  };
  const common = {
    rows: ROWS,
    heads,
    maxChunks,
    lanes,
    kvType: 'f16',
    block: BLOCK,
    tableStride,
    scale: keyDim ** -0.5,
  } as const;
  const q = floats('q', ROWS * heads * keyDim);
  const qAbs = floats('q_abs', ROWS * heads * width);
  const grouped = { rows: ROWS, tileRows: 8, groups: heads, type: 'f16', xOffset: 0, outOffset: 0 } as const;

  const parts: Record<string, { record: (recorder: Recorder) => void; rows: number }> = {
    absorb: {
      rows: ROWS,
      record: (recorder) => {
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
          { x: q, weight: halves('w_uk', heads * rank * nope), out: qAbs },
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
            x: floats('o_latent', ROWS * heads * rank),
            weight: halves('w_uv', heads * rank * v),
            out: floats('attended', ROWS * heads * v),
          },
        );
      },
    },
    mla: {
      rows: ROWS,
      record: (recorder) =>
        recorder.dispatch(
          mlaPrefill,
          { ...common, kvLoraRank: rank, qkRopeHeadDim: rope, qStride: heads * width },
          { ...shared, q_abs: qAbs, latent_cache: halves('latent', tableStride * BLOCK * width) },
        ),
    },
    expand: {
      rows: tokens,
      record: (recorder) =>
        recorder.dispatch(
          linearTiled,
          {
            rows: tokens,
            inFeatures: rank,
            outFeatures: expanded,
            type: 'f16',
            segments: { total: 1, align: 32 },
            bias: false,
            xStride: rank,
            outStride: expanded,
            epilogue: 'none',
          },
          {
            x: floats('latents', tokens * rank),
            weight: halves('kv_b', expanded * rank),
            out: floats('expanded', tokens * expanded),
          },
        ),
    },
    plain: {
      rows: ROWS,
      record: (recorder) => {
        const cache = tableStride * BLOCK * heads * keyDim;
        recorder.dispatch(
          attentionPrefill,
          { ...common, kvHeads: heads, headDim: keyDim, qStride: heads * keyDim },
          { ...shared, q, k_cache: halves('k', cache), v_cache: halves('v', cache) },
        );
      },
    },
  };
  const ms: Record<string, number> = {};
  for (const [name, { record, rows }] of Object.entries(parts)) {
    const recorder = new Recorder(device, name);
    record(recorder);
    const program = recorder.finish();
    const run = async ({ rows, chunks }: { rows: number; chunks: number }): Promise<number> => {
      const encoder = device.gpu.createCommandEncoder();
      const pass = encoder.beginComputePass();
      program.encode(pass, { rows: [rows], chunks });
      pass.end();
      const commands = encoder.finish();
      const start = performance.now();
      device.gpu.queue.submit([commands]);
      await device.wait(device.gpu.queue.onSubmittedWorkDone());
      return performance.now() - start;
    };
    await run({ rows: 16, chunks: 1 });
    ms[name] = Math.min(await run({ rows, chunks: maxChunks }), await run({ rows, chunks: maxChunks }));
    program.dispose();
  }
  for (const buffer of buffers) buffer.dispose();
  const absorbed = ms['absorb']! + ms['mla']!;
  const plain = (ms['plain']! * (keyDim + v)) / (2 * keyDim);
  const total = ms['expand']! + plain;
  const share = (part: number, whole: number): string => (part / whole).toFixed(2);
  return (
    `| ${device.name} | ${rank}, ${nope} + ${rope}, ${v} | ${before} | ${share(total, absorbed)} | ` +
    `${share(ms['mla']!, absorbed)} | ${share(ms['expand']!, total)} |`
  );
}

const wanted = process.env['SPLITKV_BENCH_ADAPTER'] ?? '';
describe('prompt rows: absorbed against expanded', async () => {
  for (const adapter of (await testAdapters()).filter(({ name }) => name.includes(wanted))) {
    test(adapter.name, { timeout: 600_000 }, async () => {
      const device = await adapter.open();
      const lines = [
        '| adapter | R, nope + rope, v | tokens before | expanded / absorbed | attention in absorbed | expansion in expanded |',
        '|---|---|---|---|---|---|',
      ];
      for (const shape of SHAPES) {
        for (const before of [0, 2048]) {
          lines.push(await device.checked('prompt rows', () => measure(device, shape, before)));
          console.log(lines.at(-1));
        }
      }
      device.dispose();
      console.log(lines.join('\n'));
    });
  }
});
