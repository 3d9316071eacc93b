import { formatError } from '../../base/errors.js';
import { joinBytes, sha256 } from '../../base/math.js';
import type { TensorReader } from '../../loader/index.js';
import type { ModelConfig } from '../../model/config/model_config.js';

/**
 * What a model's files say that they are: its config, and name, type, shape and place of each tensor. Machines that load a slice each
 * compare it: other files are told from the first byte, and nothing is read for it. It doesn't tell weights of the same shapes apart.
 */
export async function modelDigest(config: ModelConfig, { index }: TensorReader): Promise<string> {
  const tensors = [...index.tensors].toSorted(([a], [b]) => (a < b ? -1 : 1));
  const text = new TextEncoder().encode(JSON.stringify([config, tensors], asComputed));
  return (await sha256(text)).slice(0, 32);
}

/** Fractions as ranks compute with them, in f32: a page's `32 ** -0.5` and Node's differ in the last bit of a double. */
const asComputed = (_key: string, value: unknown): unknown =>
  typeof value === 'number' && !Number.isInteger(value) ? Math.fround(value) : value;

/** @throws SplitkvError `format` with both digests */
export async function checkDigest(expected: string, config: ModelConfig, reader: TensorReader): Promise<void> {
  const found = await modelDigest(config, reader);
  if (found === expected) return;
  throw formatError(
    `this rank's files of the model are others (${found}) than the coordinator's (${expected}): put the same files there`,
  );
}

const SAMPLE_BYTES = 4096;

/**
 * As `modelDigest`, and with a sample of each tensor's bytes, from its middle: weights that were trained otherwise are told apart, by a
 * few MB at most that are read.
 */
export async function weightsDigest(config: ModelConfig, reader: TensorReader): Promise<string> {
  const { source, index } = reader;
  const parts = [new TextEncoder().encode(await modelDigest(config, reader))];
  for (const [, { file, start, end, slice }] of [...index.tensors].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    if (slice || end <= start) continue; // made of others
    const from = start + Math.max(0, Math.floor((end - start - SAMPLE_BYTES) / 2));
    parts.push(await source.read(file, from, Math.min(end, from + SAMPLE_BYTES)));
  }
  return (await sha256(joinBytes(parts))).slice(0, 32);
}
