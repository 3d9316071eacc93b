import { range } from '../../base/lists.js';
import { matrixShape } from '../../loader/index.js';
import type { LowRankPair } from '../../model/adapters/targets.js';
import { numbered } from '../../model/config/tensor_names.js';
import type { PairReading, StoredPair } from './adapter_files.js';

/**
 * What PEFT has beside a stack of all experts' matrices (`target_parameters`), as a pair of each expert's: of expert e, A has rows
 * e r .. (e + 1) r - 1, and B the columns e, E + e, 2 E + e, ... Of gate and up in one stack, B has the rows of both. Undefined for what
 * is no stack of this model.
 * @throws SplitkvError `format` for other shapes
 */
export async function readStackedPairs(
  { reader, config: { layers, tensors, hiddenSize }, scale, read }: PairReading,
  { module, a, b, scaleOf }: StoredPair,
): Promise<LowRankPair[] | undefined> {
  const layer = Number(/(?:^|\.)layers\.(\d+)\.(?:\w+\.)?experts$/.exec(module)?.[1]);
  const mlp = layers[layer]?.mlp;
  const names = numbered(tensors, layer).experts;
  if (mlp?.kind !== 'experts' || !names) return undefined;
  const { numExperts: count, width } = mlp;
  const isDown = matrixShape(reader.entry(a)).columns === width && matrixShape(reader.entry(b)).rows === hiddenSize;
  const [parts, inputs, parameter] = isDown
    ? ([['down'], width, 'down_proj'] as const)
    : ([['gate', 'up'], hiddenSize, 'gate_up_proj'] as const);
  const outputs = isDown ? hiddenSize : 2 * width;
  const rank = Math.max(1, Math.round(matrixShape(reader.entry(a)).rows / count));
  reader.expectTensor(a, [rank * count, inputs]);
  reader.expectTensor(b, [outputs, rank * count]);
  const [ofA, ofB] = [await read(a, rank * count), await read(b, outputs)];
  const factor = scale * scaleOf(rank, parameter);
  const length = outputs / parts.length;
  const rowOf = (part: number, row: number): number =>
    names.alternating ? row * parts.length + part : part * length + row;
  return range(0, count).flatMap((expert) =>
    parts.map((part, index): LowRankPair => {
      const own = new Float32Array(length * rank).map((_, at) => {
        const from = rowOf(index, Math.floor(at / rank)) * rank * count;
        return factor * ofB[from + (at % rank) * count + expert]!;
      });
      const tensor = `${names[part].replace('{expert}', `${expert}`)}.weight`;
      return { tensor, rank, a: ofA.slice(expert * rank * inputs, (expert + 1) * rank * inputs), b: own };
    }),
  );
}
