import { blockElements, isKept, KEPT_TYPES, type MatrixType } from '../../../shaders/linear/pack.js';
import { keepsBlocks } from '../../../shaders/linear/pack_blocks.js';
import { isBlockType, storedBlocks, type TensorEntry, type TensorIndex } from '../../loader/index.js';
import type { ModelConfig } from '../config/model_config.js';
import { weightSpecs } from './model_map.js';
import { isMatrixSpec } from './weight_map.js';
import type { WeightTypes } from './weight_types.js';

/** Those that keep blocks of their own, then the others from the smallest to the one that holds all that is read. */
const WIDER: readonly MatrixType[] = [...KEPT_TYPES, 'q4', 'mxfp4', 'q8', 'f16', 'f32'];

/** The type that keeps what a tensor says without taking more room than need be; q8 for blocks that are put together when they are read. */
function ownType(entry: TensorEntry): MatrixType {
  const { dtype } = entry;
  if (!isBlockType(dtype)) return dtype === 'F32' || dtype === 'F64' ? 'f32' : 'f16';
  const blocks = storedBlocks(entry);
  return WIDER.find((type) => blocks !== undefined && keepsBlocks(type, blocks)) ?? 'q8';
}

/**
 * The types that keep what a checkpoint says: of one without blocks that of the most bytes, as one in 16 bits may well have a table in 32.
 * Experts and others that have one of their own (`precision`) don't count, nor do encoders.
 */
export function storedTypes({ tensors }: TensorIndex, config: ModelConfig): WeightTypes {
  const bytes = new Map<MatrixType, number>([['f16', 0]]);
  const add = (type: MatrixType, { start, end }: TensorEntry): void => {
    bytes.set(type, (bytes.get(type) ?? 0) + end - start);
  };
  const most = (): MatrixType => [...bytes].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
  const entries = [...tensors.values()].filter(({ name }) => !/^(vision|sound)\./.test(name));
  if (!entries.some(({ dtype }) => isBlockType(dtype))) {
    for (const entry of entries) add(ownType(entry), entry);
    return most();
  }
  const types = new Map<string, MatrixType>();
  for (const spec of weightSpecs(config)) {
    if (!isMatrixSpec(spec) || spec.precision === 'f32' || spec.precision === 'mxfp4') continue;
    for (const { tensor = '' } of spec.parts) {
      // One that is missing is told where it is loaded.
      const entry = tensors.get(tensor);
      if (!entry || types.has(tensor)) continue;
      const type = ownType(entry);
      types.set(tensor, type);
      add(type, entry);
    }
  }
  const base = most();
  const others = [...types].filter(([, type]) => type !== base);
  return others.length === 0 ? base : { most: base, others: Object.fromEntries(others) };
}

/** All matrices as one type, and as q8 those that a type which is kept can't hold: rows of whole blocks are as they are stored. */
export function uniformTypes(type: MatrixType, config: ModelConfig): WeightTypes {
  if (!isKept(type)) return type;
  const others: Record<string, MatrixType> = {};
  for (const spec of weightSpecs(config)) {
    if (!isMatrixSpec(spec) || spec.inFeatures % blockElements(type) === 0) continue;
    for (const { tensor } of spec.parts) if (tensor !== undefined) others[tensor] = 'q8';
  }
  return { most: type, others };
}
