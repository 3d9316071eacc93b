import { describe, expect, test } from 'vitest';
import { prefillProblem, type PrefillCase } from '../../../shaders/attention/attention_prefill/cases.js';
import { attentionPrefill } from '../../../shaders/attention/attention_prefill/index.js';
import { suite as splitSuite } from '../../../shaders/attention/attention_split/cases.js';
import { attend, attentionInputs, type RowInfo, runOn } from '../../../shaders/attention/fixture.js';
import { compressInfo } from '../../../shaders/compress/compress_info.js';
import { kvCompactReference } from '../../../shaders/compress/kv_compact/reference.js';
import { adaBudgets, keptEntries, poolScores } from '../../../shaders/compress/selection.js';
import { suite as scoresSuite } from '../../../shaders/compress/snap_scores/cases.js';
import { Random } from '../../base/random.js';
import { type Buffer, type Device, Recorder } from '../../gpu/index.js';
import { adaptersInTurn } from '../../gpu/testing/adapters.js';
import type { HostArray, HostArrays } from '../../gpu/testing/kernel_case.js';
import { baseEntries, givenBudgets } from './budgets.js';
import { compressionOptions, type KvPolicy } from './options.js';
import { PromptCompression, type SharedScores } from './prompt_compression.js';
import { drawn } from '../../gpu/testing/draw.js';

const SLOT = 1;
const LENGTH = 600;
const WINDOW = 16;
const FIRST_ROW = 4;
const LAYERS = 2;
const model = { numLayers: LAYERS, numKvHeads: 2 };
const loads = [
  [300, 60],
  [100, 20],
];
const shape = { heads: 4, kvHeads: 2, headDim: 16, kvType: 'f16', block: 64, perHead: true } as const;
const rowInfo = Array.from({ length: FIRST_ROW + WINDOW }, (_, i): RowInfo => [LENGTH - FIRST_ROW - WINDOW + i, SLOT]);
const whole = prefillProblem(shape, rowInfo);
const chunks = Math.ceil(LENGTH / 256);
const step = { rows: rowInfo.length, chunks };

const optionsOf = (policy: KvPolicy) =>
  compressionOptions({ policy, budget: 0.15, window: WINDOW, poolWidth: 5, loads }, model);

/** What the layers of a model hold; every kv head's keys and values differ. */
const layerInputs = Array.from({ length: LAYERS }, (_, layer) => attentionInputs(whole, new Random(80 + layer)));

/** A rank that holds kv heads [first, first + count) of a cache that holds both, and its queries. */
interface Rank {
  readonly first: number;
  readonly count: number;
}

interface RankRun {
  readonly kept: number[][];
  /** By layer. */
  readonly caches: {
    readonly k_cache: Uint32Array;
    readonly v_cache: Uint32Array;
    readonly block_table: Uint32Array;
  }[];
}

/** Prefill's attention of the window and the compression of both layers, on ranks that run at the same time. */
async function compress(device: Device, policy: KvPolicy, ranks: readonly Rank[]): Promise<RankRun[]> {
  const scores: SharedScores[] = [];
  let arrived = 0;
  const waiting: (() => void)[] = [];
  const runs = ranks.map(async ({ first, count }): Promise<RankRun> => {
    const own = {
      ...whole,
      heads: 2 * count,
      kvHeads: count,
      cacheKvHeads: 2,
      firstKvHead: first,
      qStride: 32 * count,
    };
    const recorder = new Recorder(device, 'compression');
    const buffers: Buffer[] = [];
    const upload = (array: HostArray): Buffer => {
      const buffer = device.createBuffer('test', array.byteLength);
      device.write(buffer, 0, array);
      buffers.push(buffer);
      return buffer;
    };
    const shape = {
      ...model,
      ...own,
      layers: [0, 1],
      modelHeads: Array.from({ length: count }, (_, head) => first + head),
      contextLength: 700,
    };
    const compression = new PromptCompression(device, optionsOf(policy), shape, (_, shared) => {
      scores.push(shared);
      recorder.exchange({ label: 'scores', run: (encoder) => share(encoder, shared) });
    });
    const partialO = device.createBuffer('o', own.rows * own.heads * own.lanes * own.headDim * 4);
    const partialMl = device.createBuffer('ml', own.rows * own.heads * own.lanes * 8);
    const layers = layerInputs.map((inputs, at) => {
      const width = whole.heads * whole.headDim;
      const q = inputs['q']!.filter(
        (_, i) => Math.floor((i % width) / (width / 2)) >= first && (i % width) / (width / 2) < first + count,
      );
      const tensors = {
        q: upload(q),
        k_cache: upload(inputs['k_cache']!),
        v_cache: upload(inputs['v_cache']!),
        block_table: upload(inputs['block_table']!),
      };
      recorder.dispatch(attentionPrefill, own, {
        ...tensors,
        row_info: upload(inputs['row_info']!),
        partial_o: partialO,
        partial_ml: partialMl,
      });
      compression.record(recorder, at, {
        q: tensors.q,
        qStride: own.qStride,
        partialMl,
        lanes: own.lanes,
        k: tensors.k_cache,
        v: tensors.v_cache,
        blockTable: tensors.block_table,
      });
      return tensors;
    });
    const share = async (encoder: GPUCommandEncoder, shared: SharedScores): Promise<void> => {
      device.gpu.queue.submit([encoder.finish()]);
      arrived++;
      if (arrived % ranks.length === 0) for (const go of waiting.splice(0)) go();
      else await new Promise<void>((resolve) => waiting.push(resolve));
      const copy = device.gpu.createCommandEncoder();
      for (const other of scores) {
        if (other.buffer === shared.buffer) continue;
        const row = shared.stride * 4;
        for (const head of other.heads) {
          copy.copyBufferToBuffer(other.buffer.gpu, head * row, shared.buffer.gpu, head * row, row);
        }
      }
      device.gpu.queue.submit([copy.finish()]);
    };
    const program = recorder.finish();
    compression.prepare({ slot: SLOT, length: LENGTH, firstRow: FIRST_ROW });
    const rest = await program.run(device.gpu.createCommandEncoder(), { rows: [step.rows], chunks });
    device.gpu.queue.submit([rest.finish()]);
    const kept = await compression.keptLengths(LENGTH);
    const caches = [];
    for (const { k_cache: k, v_cache: v, block_table: table } of layers) {
      caches.push({
        k_cache: new Uint32Array(await device.read(k)),
        v_cache: new Uint32Array(await device.read(v)),
        block_table: new Uint32Array(await device.read(table)),
      });
    }
    compression.dispose();
    program.dispose();
    for (const buffer of [...buffers, partialO, partialMl]) buffer.dispose();
    return { kept, caches };
  });
  return Promise.all(runs);
}

/** Kept entries of a layer by the definition, from the scores that the adapter computes. */
async function expectedKept(device: Device, policy: KvPolicy, layer: number): Promise<number[][]> {
  const inputs = layerInputs[layer]!;
  const { partial_ml: ml } = await runOn(
    device,
    { kernel: attentionPrefill, cases: [], inputs: () => inputs, reference: () => ({}), outputs },
    whole,
    inputs,
    step,
  );
  const problem = {
    ...whole,
    window: WINDOW,
    length: LENGTH,
    firstRow: FIRST_ROW,
    slot: SLOT,
    scoreStride: LENGTH,
    scoreHeads: 2,
  };
  const given = {
    q: inputs['q']!,
    k_cache: inputs['k_cache']!,
    block_table: inputs['block_table']!,
    partial_ml: ml!,
    compress_info: compressInfo({ slot: SLOT, length: LENGTH, firstRow: FIRST_ROW, base: 0 }),
  };
  const { scores } = await runOn(device, scoresSuite, problem, given, step);
  const options = optionsOf(policy);
  const keys = LENGTH - WINDOW;
  const pooled = [0, 1].map((head) => poolScores(scores!.subarray(head * LENGTH, head * LENGTH + keys), 5));
  const caps =
    policy === 'ada'
      ? adaBudgets(pooled, baseEntries(options, LENGTH), options.floor)
      : givenBudgets(options, model, LENGTH)[layer]!;
  return pooled.map((own, head) => keptEntries(own, caps[head]!, WINDOW));
}

const outputs = ({ rows, heads, headDim, lanes }: PrefillCase) =>
  ({
    partial_o: { type: 'f32', length: rows * heads * lanes * headDim },
    partial_ml: { type: 'f32', length: rows * heads * lanes * 2 },
  }) as const;

/** Largest difference between the next token's attention over the compressed cache and float64 over the kept keys. */
async function attentionError(device: Device, before: HostArrays, after: HostArrays, kept: readonly number[][]) {
  const problem = { ...whole, rows: 1, rowInfo: [[LENGTH - 1, SLOT]] as RowInfo[] };
  const q = before['q']!.slice(0, whole.qStride);
  const row = Uint32Array.of(LENGTH - 1, SLOT);
  const inputs = { q, ...after, row_info: row };
  const { partial_o: o, partial_ml: ml } = await runOn(device, splitSuite, problem, inputs, { rows: 1, chunks });
  let worst = 0;
  for (let head = 0; head < whole.heads; head++) {
    const entries = kept[head >> 1]!;
    // Both heads keep less than a chunk: one partial.
    expect(entries.length).toBeLessThanOrEqual(256);
    const want = attend(problem, { ...before, q, row_info: row }, 0, head, entries);
    const at = head * whole.maxChunks;
    for (const [dim, value] of want.o.entries()) {
      worst = Math.max(worst, Math.abs(o![at * whole.headDim + dim]! / ml![at * 2 + 1]! - value / want.l));
    }
    expect(Number.isNaN(ml![(at + 1) * 2]!), 'no second chunk').toBe(true);
  }
  return worst;
}

for (const adapter of await adaptersInTurn('prompt compression')) {
  describe(`compression of a prompt on ${adapter.name}`, () => {
    test.each(drawn(['snap', 'ada', 'static'] as const, 1, `policies on ${adapter.name}`))(
      "'%s': keeps what the definition says, and attention goes on over it",
      { timeout: 120_000 },
      async (policy) => {
        const device = await adapter.open();
        const [run] = await compress(device, policy, [{ first: 0, count: 2 }]);
        for (let layer = 0; layer < LAYERS; layer++) {
          const kept = await expectedKept(device, policy, layer);
          const lengths = kept.map((own) => own.length);
          expect(run!.kept[layer], `layer ${layer}`).toEqual(lengths);
          const inputs = layerInputs[layer]!;
          const stride = 640;
          const list = new Uint32Array(2 * stride);
          for (const [head, own] of kept.entries()) list.set(own, head * stride);
          const reference = kvCompactReference(
            { ...whole, scoreStride: stride, length: LENGTH, slot: SLOT, window: WINDOW, caps: [] },
            { ...inputs, kept: list, kept_lengths: Uint32Array.from(lengths) },
          );
          const after = run!.caches[layer]!;
          for (const name of ['k_cache', 'v_cache', 'block_table'] as const) {
            expect(after[name], `${name} of layer ${layer}`).toEqual(Uint32Array.from(reference[name]!));
          }
          expect(await attentionError(device, inputs, after, kept)).toBeLessThan(1e-5);
        }
        if (policy === 'ada') expect(new Set(run!.kept.flat()).size).toBeGreaterThan(1);
        device.dispose();
      },
    );

    test('ranks that split the heads keep what one rank keeps, bit for bit', { timeout: 120_000 }, async () => {
      const device = await adapter.open();
      const [one] = await compress(device, 'ada', [{ first: 0, count: 2 }]);
      const two = await compress(device, 'ada', [
        { first: 0, count: 1 },
        { first: 1, count: 1 },
      ]);
      for (let layer = 0; layer < LAYERS; layer++) {
        expect(two.map(({ kept }) => kept[layer])).toEqual([one!.kept[layer], one!.kept[layer]]);
        for (const name of ['k_cache', 'v_cache', 'block_table'] as const) {
          const before = layerInputs[layer]![name] as Uint32Array;
          // Each rank changes its own head's blocks only.
          const merged = before.map(
            (word, i) => two.map((run) => run.caches[layer]![name][i]!).find((w) => w !== word) ?? word,
          );
          expect(merged, `${name} of layer ${layer}`).toEqual(one!.caches[layer]![name]);
        }
      }
      device.dispose();
    });
  });
}
