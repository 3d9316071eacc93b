import type { WeightType } from '../../../shaders/linear/pack.js';
import { keepsBlocks } from '../../../shaders/linear/pack_blocks.js';
import { known } from '../../base/errors.js';
import { isBlockType, storedBlocks, type TensorEntry, type TensorIndex } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { weightSpecs } from './model_map.js';
import { isMatrixSpec } from './weight_map.js';
import type { WeightTypes } from './weight_types.js';

/** From the smallest to the one that holds all that is read. */
const WIDER: readonly WeightType[] = ['q4', 'q8', 'f16', 'f32'];

/**
 * The type that keeps what a tensor says without taking more room than need be. Blocks that no type holds as they are have finer scales
 * than q4, or more bits, so they become q8.
 */
function ownType(entry: TensorEntry): WeightType {
  const { dtype } = entry;
  if (!isBlockType(dtype)) return dtype === 'F32' || dtype === 'F64' ? 'f32' : 'f16';
  const blocks = storedBlocks(entry);
  return WIDER.find((type) => blocks !== undefined && keepsBlocks(type, blocks)) ?? 'q8';
}

/** The smallest type that loses no more of any of them than their own do. */
function joinedType(entries: readonly TensorEntry[]): WeightType {
  const holds = (type: WeightType, entry: TensorEntry): boolean =>
    type === ownType(entry) || type === 'f32' || keepsBlocks(type, storedBlocks(entry) ?? '');
  return known(
    WIDER.find((type) => entries.every((entry) => holds(type, entry))),
    'type of a matrix',
  );
}

/**
 * The types that keep what a checkpoint says: of one without blocks that of the most bytes, as one in 16 bits may well have a table in 32.
 * Tensors that one matrix is made of have one type. Experts and others that have one of their own (`precision`) don't count.
 */
export function storedTypes({ tensors }: TensorIndex, config: ModelConfig): WeightTypes {
  const bytes: Record<WeightType, number> = { f16: 0, f32: 0, q8: 0, q4: 0 };
  const most = (): WeightType => (Object.keys(bytes) as WeightType[]).reduce((a, b) => (bytes[b] > bytes[a] ? b : a));
  const entries = [...tensors.values()];
  if (!entries.some(({ dtype }) => isBlockType(dtype))) {
    for (const entry of entries) bytes[ownType(entry)] += entry.end - entry.start;
    return most();
  }
  const types = new Map<string, WeightType>();
  for (const spec of weightSpecs(config)) {
    if (!isMatrixSpec(spec) || spec.precision === 'f32' || spec.precision === 'mxfp4') continue;
    // A tensor that is missing is told where it is loaded.
    const made = new Map(
      spec.parts.flatMap(({ tensor = '' }) => {
        const entry = tensors.get(tensor);
        return entry ? [[tensor, entry] as const] : [];
      }),
    );
    if (made.size === 0) continue;
    const joined = joinedType([...made.values()]);
    for (const [name, entry] of made) {
      const { start, end } = entry;
      const type = spec.splits ? ownType(entry) : joined;
      types.set(name, type);
      bytes[type] += end - start;
    }
  }
  const base = most();
  const others = [...types].filter(([, type]) => type !== base);
  return others.length === 0 ? base : { most: base, others: Object.fromEntries(others) };
}
