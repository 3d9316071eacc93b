import { attentionMerge } from '../../../shaders/attention/attention_merge/index.js';
import { attentionSplit } from '../../../shaders/attention/attention_split/index.js';
import { CHUNK_TOKENS } from '../../../shaders/cache/kv_cache.js';
import { ceilDiv } from '../../../src/base/math.js';
import { Random } from '../../../src/base/random.js';
import { cacheBlocks } from '../onnx/kv_blocks.js';
import { GraphBuilder } from '../onnx/graph.js';
import { type Buffer, type Device, Recorder } from '../../../src/gpu/index.js';
import { type KernelContender, type KernelTask, LINKS, runProgram } from './kernel_task.js';
import { plannedForGpu } from './planned_for_gpu.js';
import type { Ort, OrtTensor } from '../ort.js';

const HEADS = 32;
const KV_HEADS = 8;
const HEAD_DIM = 64;
const BLOCK = 64;
const SCALE = HEAD_DIM ** -0.5;

/** What both work on: f32, [kv_heads][tokens][head_dim], and a row of queries. */
interface Operands {
  readonly tokens: number;
  readonly q: Float32Array<ArrayBuffer>;
  readonly keys: Float32Array<ArrayBuffer>;
  readonly values: Float32Array<ArrayBuffer>;
}

/** One generated row's attention, 32 query heads over 8 kv heads of 64, f32: split-KV and merge against GroupQueryAttention. */
export async function attentionTask(device: Device, ort: Ort, tokens: number): Promise<KernelTask> {
  const random = new Random(tokens);
  const length = KV_HEADS * tokens * HEAD_DIM;
  const operands = {
    tokens,
    q: random.normals(HEADS * HEAD_DIM),
    keys: random.normals(length),
    values: random.normals(length),
  };
  const ours = [await oursOf(device, operands, 'splitkv')];
  if (device.traits.software) ours.push(await oursOf(plannedForGpu(device), operands, 'splitkv, as on a GPU'));
  const peer = await ortOf(ort, operands);
  return {
    name: 'attention',
    tokens,
    contenders: [...ours, peer],
    async dispose() {
      for (const own of ours) own.dispose();
      await peer.dispose();
    },
  };
}

async function oursOf(
  device: Device,
  { tokens, q, keys, values }: Operands,
  runtime: string,
): Promise<KernelContender & { dispose(): void }> {
  const shape = { kvHeads: KV_HEADS, headDim: HEAD_DIM, kvType: 'f32', block: BLOCK } as const;
  const blocks = ceilDiv(tokens, BLOCK);
  const maxChunks = ceilDiv(tokens, CHUNK_TOKENS);
  const buffers: Buffer[] = [];
  const filled = (name: string, data: ArrayBufferView): Buffer => {
    const buffer = device.createBuffer(name, data.byteLength);
    buffers.push(buffer);
    device.write(buffer, 0, data);
    return buffer;
  };
  const width = HEADS * HEAD_DIM;
  const { program, out } = await device.checked('the attention task', () => {
    const shared = {
      row_info: filled('row_info', Uint32Array.of(tokens - 1, 0)),
      block_table: filled(
        'block_table',
        Uint32Array.from({ length: blocks }, (_, i) => i),
      ),
    };
    const partials = {
      partial_o: filled('partial_o', new Float32Array(maxChunks * width)),
      partial_ml: filled('partial_ml', new Float32Array(maxChunks * HEADS * 2)),
    };
    const cache = {
      k_cache: filled('k_cache', cacheBlocks('key', keys, tokens, shape)),
      v_cache: filled('v_cache', cacheBlocks('value', values, tokens, shape)),
    };
    const rows = [filled('q', q), ...Array.from({ length: LINKS }, () => filled('out', new Float32Array(width)))];
    const recorder = new Recorder(device, 'attention');
    for (let link = 0; link < LINKS; link++) {
      const common = { rows: 1, heads: HEADS, headDim: HEAD_DIM };
      recorder.dispatch(
        attentionSplit,
        {
          ...common,
          kvHeads: KV_HEADS,
          maxChunks,
          kvType: 'f32',
          block: BLOCK,
          tableStride: blocks,
          qStride: width,
          scale: SCALE,
        },
        { q: rows[link], ...cache, ...shared, ...partials },
      );
      recorder.dispatch(
        attentionMerge,
        { ...common, partials: maxChunks, outStride: width },
        { ...partials, row_info: shared.row_info, out: rows[link + 1] },
      );
    }
    return { program: recorder.finish(), out: rows.at(-1)! };
  });
  const step = { rows: [1], chunks: maxChunks };
  return {
    runtime,
    run: (times) => runProgram(device, program, step, times),
    result: async () => new Float32Array(await device.read(out)),
    dispose() {
      program.dispose();
      for (const buffer of buffers) buffer.dispose();
    },
  };
}

async function ortOf(
  ort: Ort,
  { tokens, q, keys, values }: Operands,
): Promise<KernelContender & { dispose(): Promise<void> }> {
  const graph = new GraphBuilder('attention');
  const rowDims = (heads: number) => [1, 1, heads * HEAD_DIM];
  const cacheDims = [1, KV_HEADS, tokens, HEAD_DIM];
  const inputs = ['key', 'value'].map((name) => graph.input(name, 'f32', rowDims(KV_HEADS)));
  const past = ['past_key', 'past_value'].map((name) => graph.input(name, 'f32', cacheDims));
  const lengths = [graph.input('seqlens_k', 'i32', [1]), graph.input('total_sequence_length', 'i32', [1])];
  let query = graph.input('query', 'f32', rowDims(HEADS));
  const presents: string[] = [];
  for (let link = 0; link < LINKS; link++) {
    const outputs = [`attended.${link}`, `present_key.${link}`, `present_value.${link}`];
    graph.node('com.microsoft.GroupQueryAttention', [query, ...inputs, ...past, ...lengths], outputs, {
      num_heads: HEADS,
      kv_num_heads: KV_HEADS,
      scale: { float: SCALE },
    });
    query = outputs[0]!;
    for (const present of outputs.slice(1)) graph.output(present, 'f32', cacheDims);
    presents.push(...outputs.slice(1));
  }
  graph.output(query, 'f32', rowDims(HEADS));
  const session = await ort.session(graph.finish(), [query, ...presents]);
  const caches = [ort.onGpu(cacheDims, keys), ort.onGpu(cacheDims, values)];
  // The newest token's keys and values are appended by every link, where they are already.
  const newest = (of: Float32Array): OrtTensor => {
    const rows = Array.from({ length: KV_HEADS }, (_, head) =>
      of.subarray(((head + 1) * tokens - 1) * HEAD_DIM, (head + 1) * tokens * HEAD_DIM),
    );
    return ort.onGpu(rowDims(KV_HEADS), Float32Array.from(rows.flatMap((row) => [...row])));
  };
  const out = ort.onGpu(rowDims(HEADS));
  const row = ort.onGpu(rowDims(HEADS), q);
  const [key, value] = [newest(keys), newest(values)];
  const feeds = {
    query: row,
    key,
    value,
    past_key: caches[0]!,
    past_value: caches[1]!,
    seqlens_k: ort.tensor('int32', Int32Array.of(tokens - 1), [1]),
    total_sequence_length: ort.tensor('int32', Int32Array.of(tokens), [1]),
  };
  const fetches = { [query]: out, ...Object.fromEntries(presents.map((name, index) => [name, caches[index % 2]!])) };
  return {
    runtime: 'onnxruntime-web GroupQueryAttention',
    async run(times) {
      for (let i = 0; i < times; i++) await session.run(feeds, fetches);
      await ort.done();
    },
    result: () => ort.read(out.gpuBuffer),
    async dispose() {
      await session.release();
      for (const { gpuBuffer } of [...caches, out, row, key, value]) gpuBuffer.destroy();
    },
  };
}
