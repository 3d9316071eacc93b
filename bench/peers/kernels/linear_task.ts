import { packTiles } from '../../../shaders/linear/pack.js';
import { Random } from '../../../src/base/random.js';
import { GraphBuilder } from '../onnx/graph.js';
import { type Buffer, type Device, Recorder } from '../../../src/gpu/index.js';
import { allocateMatrix, type Matrix } from '../../../src/model/weights/matrix.js';
import { recordLinear } from '../../../src/model/layers/linear/linear.js';
import { type KernelContender, type KernelTask, LINKS, runProgram } from './kernel_task.js';
import { plannedForGpu } from './planned_for_gpu.js';
import type { Ort } from '../ort.js';
import { nBitsBlocks } from './n_bits_blocks.js';

interface Operands {
  readonly size: number;
  readonly x: Float32Array<ArrayBuffer>;
  /** [size][size], one a link. */
  readonly matrices: readonly Float32Array[];
}

/** A row times q4 matrices of size x size, in blocks of 32: our linear kernel against MatMulNBits. */
export async function linearTask(device: Device, ort: Ort, size: number): Promise<KernelTask> {
  const random = new Random(size);
  // As large as it went in: the length of a row stays about the same over the chain.
  const deviation = size ** -0.5;
  const operands = {
    size,
    x: random.normals(size),
    matrices: Array.from({ length: LINKS }, () => random.normals(size * size, deviation)),
  };
  const ours = [await oursOf(device, operands, 'splitkv')];
  if (device.traits.software) ours.push(await oursOf(plannedForGpu(device), operands, 'splitkv, as on a GPU'));
  const peer = await ortOf(ort, operands);
  return {
    name: `q4 matrix ${size} x ${size}`,
    contenders: [...ours, peer],
    async dispose() {
      for (const own of ours) own.dispose();
      await peer.dispose();
    },
  };
}

async function oursOf(
  device: Device,
  { size, x, matrices }: Operands,
  runtime: string,
): Promise<KernelContender & { dispose(): void }> {
  const buffers: Buffer[] = [];
  const { program, out } = await device.checked('the matrix task', () => {
    const rows = Array.from({ length: LINKS + 1 }, () => device.createBuffer('row', size * 4));
    buffers.push(...rows);
    device.write(rows[0]!, 0, x);
    const recorder = new Recorder(device, 'matrices');
    for (const [link, values] of matrices.entries()) {
      const matrix = q4Matrix(device, values, size);
      for (const { weight, scale } of matrix.shards) buffers.push(weight, ...(scale ? [scale] : []));
      const io = { x: rows[link]!, xStride: size, out: rows[link + 1]!, outStride: size };
      recordLinear(recorder, { role: 'generated', rows: 1, normed: undefined }, matrix, io);
    }
    return { program: recorder.finish(), out: rows.at(-1)! };
  });
  return {
    runtime,
    run: (times) => runProgram(device, program, { rows: [1], chunks: 1 }, times),
    result: async () => new Float32Array(await device.read(out)),
    dispose() {
      program.dispose();
      for (const buffer of buffers) buffer.dispose();
    },
  };
}

function q4Matrix(device: Device, values: Float32Array, size: number): Matrix {
  const part = { tensor: '', tensorRows: size, firstRow: 0, rows: size };
  const matrix = allocateMatrix(device, { name: 'matrix', inFeatures: size, parts: [part], whole: true }, 'q4');
  const { weight, scale } = packTiles('q4', values, size, size);
  const [shard] = matrix.shards;
  device.write(shard!.weight, 0, weight);
  device.write(shard!.scale!, 0, scale!);
  return matrix;
}

async function ortOf(
  ort: Ort,
  { size, x, matrices }: Operands,
): Promise<KernelContender & { dispose(): Promise<void> }> {
  const graph = new GraphBuilder('matrices');
  const dims = [1, 1, size];
  let value = graph.input('x', 'f32', dims);
  for (const [link, values] of matrices.entries()) {
    const { data, scales } = nBitsBlocks('q4', values, size, size);
    const weights = [
      graph.weights(`q4.${link}`, data, [size, size / 32, 16], 'u8'),
      graph.weights(`scales.${link}`, scales, [(size * size) / 32]),
    ];
    value = graph.op('com.microsoft.MatMulNBits', [value, ...weights], { K: size, N: size, bits: 4, block_size: 32 });
  }
  graph.output(value, 'f32', dims);
  const session = await ort.session(graph.finish(), [value]);
  const [row, out] = [ort.onGpu(dims, x), ort.onGpu(dims)];
  return {
    runtime: 'onnxruntime-web MatMulNBits',
    async run(times) {
      for (let i = 0; i < times; i++) await session.run({ x: row }, { [value]: out });
      await ort.done();
    },
    result: () => ort.read(out.gpuBuffer),
    async dispose() {
      await session.release();
      row.gpuBuffer.destroy();
      out.gpuBuffer.destroy();
    },
  };
}
