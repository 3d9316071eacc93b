import { mkdirSync, writeFileSync } from 'node:fs';
import { describe, test } from 'vitest';
import { Random } from '../../../src/base/random.js';
import { median } from '../../../src/base/stats.js';
import { type Buffer, type Device, type Program, Recorder } from '../../../src/gpu/index.js';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { attentionSplit } from '../attention_split/index.js';
import { mlaSplit } from './index.js';

// One generated row of DeepSeek-V2-Lite's attention: 16 heads, latent 512 + 64, against the same heads as plain multi-head
// attention over the expanded cache. attention_split has one head_dim for K and V: 192 (= nope + rope), where V needs only 128;
// the bytes of the exact expansion (192 + 128) are printed beside what the kernel reads, and its time is scaled by (192 + 128) / 384.
const HEADS = 16;
const RANK = 512;
const ROPE = 64;
const KEY_DIM = 192;
const VALUE_DIM = 128;
const BLOCK = 64;
const TOKENS = [1024, 4096, 8192];
const ROUNDS = 7;

interface Row {
  readonly adapter: string;
  readonly tokens: number;
  readonly mlaUs: number;
  readonly mhaUs: number;
}

const MLA_BYTES = (RANK + ROPE) * 2;
const MHA_BYTES = HEADS * (KEY_DIM + VALUE_DIM) * 2;
const rows: Row[] = [];

async function time(device: Device, program: Program, chunks: number, repeats: number): Promise<number> {
  const encoder = device.gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (let i = 0; i < repeats; i++) program.encode(pass, { rows: [1], chunks });
  pass.end();
  const commands = encoder.finish();
  const start = performance.now();
  device.gpu.queue.submit([commands]);
  await device.wait(device.gpu.queue.onSubmittedWorkDone());
  return ((performance.now() - start) * 1000) / repeats;
}

async function measure(device: Device, tokens: number): Promise<Row> {
  const random = new Random(1);
  const chunks = tokens / 256;
  const common = {
    rows: 1,
    heads: HEADS,
    maxChunks: chunks,
    kvType: 'f16',
    block: BLOCK,
    tableStride: tokens / BLOCK,
  } as const;
  // A fixed pattern of small halves (0.25 .. 0.5): values don't change what is read, only must not be slow (subnormal) ones.
  const filled = (name: string, bytes: number): Buffer => {
    const words = new Uint32Array(bytes / 4).map((_, i) => 0x34003400 | ((i * 2654435761) & 0x03ff03ff));
    const buffer = device.createBuffer(name, bytes);
    device.write(buffer, 0, words);
    return buffer;
  };
  const floats = (name: string, length: number): Buffer => {
    const buffer = device.createBuffer(name, length * 4);
    device.write(buffer, 0, random.normals(length, 0.1));
    return buffer;
  };
  const rowInfo = device.createBuffer('row_info', 8);
  device.write(rowInfo, 0, Uint32Array.of(tokens - 1, 0));
  const table = device.createBuffer('block_table', (tokens / BLOCK) * 4);
  device.write(
    table,
    0,
    Uint32Array.from({ length: tokens / BLOCK }, (_, i) => i),
  );
  const shared = { row_info: rowInfo, block_table: table };
  const partials = {
    partial_o: floats('partial_o', HEADS * chunks * RANK),
    partial_ml: floats('partial_ml', HEADS * chunks * 2),
  };

  const mla = new Recorder(device, 'mla');
  mla.dispatch(
    mlaSplit,
    { ...common, kvLoraRank: RANK, qkRopeHeadDim: ROPE, qStride: HEADS * (RANK + ROPE), scale: KEY_DIM ** -0.5 },
    {
      ...shared,
      ...partials,
      q_abs: floats('q_abs', HEADS * (RANK + ROPE)),
      latent_cache: filled('latent', tokens * MLA_BYTES),
    },
  );
  const mha = new Recorder(device, 'mha');
  const cacheBytes = tokens * HEADS * KEY_DIM * 2;
  mha.dispatch(
    attentionSplit,
    { ...common, kvHeads: HEADS, headDim: KEY_DIM, qStride: HEADS * KEY_DIM, scale: KEY_DIM ** -0.5 },
    {
      ...shared,
      ...partials,
      q: floats('q', HEADS * KEY_DIM),
      k_cache: filled('k', cacheBytes),
      v_cache: filled('v', cacheBytes),
    },
  );
  const programs = [mla.finish(), mha.finish()] as const;
  const samples: [number[], number[]] = [[], []];
  const repeats = Math.max(1, Math.round(8192 / tokens));
  for (const program of programs) await time(device, program, chunks, 1);
  // Interleaved, so that a busy neighbour falls on both alike.
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, program] of programs.entries()) samples[i]!.push(await time(device, program, chunks, repeats));
  }
  return {
    adapter: device.name,
    tokens,
    mlaUs: median(samples[0]),
    mhaUs: (median(samples[1]) * (KEY_DIM + VALUE_DIM)) / (2 * KEY_DIM),
  };
}

function table(all: readonly Row[]): string {
  const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
  return [
    '| adapter | tokens | MLA MiB read | multi-head MiB read | bytes ratio | time ratio |',
    '|---|---|---|---|---|---|',
    ...all.map(({ adapter, tokens, mlaUs, mhaUs }) => {
      const cells = [adapter, tokens, mib(tokens * MLA_BYTES), mib(tokens * MHA_BYTES)];
      return `| ${cells.join(' | ')} | ${(MHA_BYTES / MLA_BYTES).toFixed(2)} | ${(mhaUs / mlaUs).toFixed(2)} |`;
    }),
  ].join('\n');
}

/** Time ratio (multi-head / MLA) over tokens, a line an adapter; above 1 MLA is faster. */
function plot(all: readonly Row[]): string {
  const adapters = [...new Set(all.map((row) => row.adapter))];
  const colours = ['#2563eb', '#dc2626', '#16a34a', '#9333ea'];
  const top = Math.max(2, Math.ceil(Math.max(...all.map((row) => row.mhaUs / row.mlaUs))));
  const x = (tokens: number): number =>
    60 + (480 * Math.log2(tokens / TOKENS[0]!)) / Math.log2(TOKENS.at(-1)! / TOKENS[0]!);
  const y = (ratio: number): number => 260 - (220 * ratio) / top;
  const text = (at: string, content: string): string =>
    `<text ${at} font-family="sans-serif" font-size="12" fill="#444">${content}</text>`;
  const ticks = Array.from({ length: top + 1 }, (_, i) => i);
  return [
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 320">',
    '<rect width="620" height="320" fill="white"/>',
    ...ticks.map(
      (i) =>
        `<path d="M60 ${y(i)}H540" stroke="${i === 1 ? '#444' : '#ddd'}"/>${text(`x="40" y="${y(i) + 4}"`, String(i))}`,
    ),
    ...TOKENS.map((tokens) => text(`x="${x(tokens)}" y="280" text-anchor="middle"`, String(tokens))),
    text('x="300" y="304" text-anchor="middle"', 'tokens in the cache'),
    text('x="60" y="24"', 'decode attention, time of plain multi-head / time of MLA (above 1: MLA is faster)'),
    ...adapters.map((adapter, i) => {
      const own = all.filter((row) => row.adapter === adapter);
      const points = own.map((row) => `${x(row.tokens).toFixed(1)},${y(row.mhaUs / row.mlaUs).toFixed(1)}`).join(' ');
      const colour = colours[i % colours.length]!;
      const label = `<text x="64" y="${44 + 16 * i}" font-family="sans-serif" font-size="12" fill="${colour}">${adapter}</text>`;
      return `<polyline points="${points}" fill="none" stroke="${colour}" stroke-width="2"/>${label}`;
    }),
    '</svg>',
    '',
  ].join('\n');
}

const wanted = process.env['SPLITKV_BENCH_ADAPTER'] ?? '';
describe('MLA against multi-head attention', async () => {
  for (const adapter of (await testAdapters()).filter(({ name }) => name.includes(wanted))) {
    test(adapter.name, { timeout: 600_000 }, async () => {
      const device = await adapter.open();
      for (const tokens of TOKENS) rows.push(await device.checked('crossover', () => measure(device, tokens)));
      device.dispose();
      console.log(table(rows));
      const directory = process.env['SPLITKV_BENCH_DIR'];
      if (directory) {
        mkdirSync(directory, { recursive: true });
        writeFileSync(`${directory}/mla_crossover.svg`, plot(rows));
        writeFileSync(`${directory}/mla_crossover.json`, `${JSON.stringify(rows, null, 2)}\n`);
      }
    });
  }
});
