import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { blockShape, HEAD_TABLE_LEAD, headTable } from '../../cache/head_tables.js';
import { keyUnit, kvVectorBytes, storedUnits, valueUnit } from '../../cache/kv_cache.js';
import type { KvCompactCase } from './cases.js';

/** Caches and tables with each head's kept entries at its front; everything behind them as it was. */
export function kvCompactReference(problem: KvCompactCase, inputs: HostArrays): Expected {
  const { kvHeads, firstKvHead = 0, headDim, kvType, block, scoreStride, length, slot } = problem;
  const shape = blockShape({ ...problem, perHead: true });
  const table = Array.from(inputs['block_table']!);
  const units = storedUnits(headDim, kvType);
  const unitWords = kvVectorBytes(headDim, kvType) / units / 4;
  const move = (name: string, unitOf: typeof keyUnit): number[] => {
    const before = inputs[name]!;
    const after = Array.from(before);
    for (let head = 0; head < kvHeads; head++) {
      const at = headTable({ ...problem, perHead: true }, slot, firstKvHead + head) + HEAD_TABLE_LEAD;
      const physical = (entry: number): number => table[at + Math.floor(entry / block)]!;
      for (let i = 0; i < inputs['kept_lengths']![head]!; i++) {
        const source = inputs['kept']![head * scoreStride + i]!;
        for (let unit = 0; unit < units; unit++) {
          const to = unitOf(shape, physical(i), 0, unit, i % block) * unitWords;
          const start = unitOf(shape, physical(source), 0, unit, source % block) * unitWords;
          for (let word = 0; word < unitWords; word++) after[to + word] = before[start + word]!;
        }
      }
    }
    return after;
  };
  const moved = { k_cache: move('k_cache', keyUnit), v_cache: move('v_cache', valueUnit) };
  for (let head = 0; head < kvHeads; head++) {
    const at = headTable({ ...problem, perHead: true }, slot, firstKvHead + head);
    table[at] = length - inputs['kept_lengths']![head]!;
  }
  return { ...moved, block_table: table };
}
