import type { TensorToWrite } from '../../loader/testing/write_safetensors.js';
import { expertsOf, type ModelConfig } from '../config/model_config.js';

/** E2M1 by its codes 0 to 7; a bit of 8 is the sign. */
const numbers = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/**
 * A model's tensors, experts each by itself and in f32, as gpt-oss's files have them: stacks of a layer's experts in which gate and up
 * alternate; plain ones input by input, or in MXFP4 blocks and scales output by output.
 */
export function gptOssTensors(config: ModelConfig, tensors: readonly TensorToWrite[]): TensorToWrite[] {
  const { numExperts, packed } = expertsOf(config)!;
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const values = (name: string): { shape: readonly number[]; data: Float32Array } => {
    const { shape, dtype, data } = byName.get(name)!;
    const bytes = data as Uint8Array;
    if (dtype !== 'F32') throw new Error(`${name} is ${dtype}`);
    return { shape, data: new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4) };
  };
  const out = tensors.filter(({ name }) => !/\.experts\.\d+\./.test(name));
  for (let layer = 0; layer < config.layers.length; layer++) {
    const at = `model.layers.${layer}.mlp.experts.`;
    for (const [stack, parts] of [
      ['gate_up_proj', ['gate', 'up']],
      ['down_proj', ['down']],
    ] as const) {
      const all = Array.from({ length: numExperts }, (_, e) =>
        parts.map((part) => ({
          weight: values(`${at}${e}.${part}_proj.weight`),
          bias: values(`${at}${e}.${part}_proj.bias`).data,
        })),
      );
      const [ownRows, columns] = all[0]![0]!.weight.shape as [number, number];
      const rows = ownRows * parts.length;
      const value = (e: number, row: number, column: number): number =>
        all[e]![row % parts.length]!.weight.data[Math.floor(row / parts.length) * columns + column]!;
      const biases = Float32Array.from({ length: numExperts * rows }, (_, i) => {
        const row = i % rows;
        return all[Math.floor(i / rows)]![row % parts.length]!.bias[Math.floor(row / parts.length)]!;
      });
      out.push({ name: `${at}${stack}_bias`, dtype: 'F32', shape: [numExperts, rows], data: biases });
      if (packed) out.push(...blocksOf(`${at}${stack}`, numExperts, rows, columns, value));
      else {
        const data = new Float32Array(numExperts * columns * rows);
        let to = 0;
        for (let e = 0; e < numExperts; e++) {
          for (let column = 0; column < columns; column++) {
            for (let row = 0; row < rows; row++) data[to++] = value(e, row, column);
          }
        }
        out.push({ name: `${at}${stack}`, dtype: 'F32', shape: [numExperts, columns, rows], data });
      }
    }
  }
  return out;
}

/** Values that are MXFP4 already: each block by the largest scale at which all are numbers of E2M1. */
function blocksOf(
  name: string,
  experts: number,
  rows: number,
  columns: number,
  value: (expert: number, row: number, column: number) => number,
): TensorToWrite[] {
  const blocks = new Uint8Array((experts * rows * columns) / 2);
  const scales = new Uint8Array((experts * rows * columns) / 32);
  for (let block = 0; block < scales.length; block++) {
    const row = Math.floor(block / (columns / 32));
    const first = (block % (columns / 32)) * 32;
    const own = Array.from({ length: 32 }, (_, k) => value(Math.floor(row / rows), row % rows, first + k));
    const held = (scale: number): boolean => own.every((v) => numbers.includes(Math.abs(v) / 2 ** (scale - 127)));
    let scale = 140;
    while (!held(scale)) if (--scale < 0) throw new Error(`${name}: no MXFP4 block: ${own.join(' ')}`);
    scales[block] = scale;
    for (const [k, v] of own.entries()) {
      const code = numbers.indexOf(Math.abs(v) / 2 ** (scale - 127)) | (v < 0 ? 8 : 0);
      blocks[block * 16 + (k >> 1)]! |= code << ((k & 1) * 4);
    }
  }
  const shape = [experts, rows, columns / 32];
  return [
    { name: `${name}_blocks`, dtype: 'U8', shape: [...shape, 16], data: blocks },
    { name: `${name}_scales`, dtype: 'U8', shape, data: scales },
  ];
}
