import type { HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import {
  ARGMAX_TILE,
  NO_TOKEN,
  partialsPerSlot,
  SAMPLING_FIELDS,
  SAMPLING_PARAMS_BYTES,
  type SamplingProblem,
  seenWords,
} from '../params.js';
import type { ArgmaxProblem } from './index.js';

export interface SlotParams {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly repetitionPenalty: number;
  readonly seed: readonly [number, number];
  readonly counter: number;
  readonly active: boolean;
}

export function readSlotParams(sampling: ArrayLike<number>, slot: number): SlotParams {
  const words = Uint32Array.from(
    { length: SAMPLING_PARAMS_BYTES / 4 },
    (_, i) => sampling[(slot * SAMPLING_PARAMS_BYTES) / 4 + i]!,
  );
  const view = new DataView(words.buffer);
  const f32 = (field: keyof typeof SAMPLING_FIELDS): number => view.getFloat32(SAMPLING_FIELDS[field], true);
  const u32 = (field: keyof typeof SAMPLING_FIELDS): number => view.getUint32(SAMPLING_FIELDS[field], true);
  return {
    temperature: f32('temperature'),
    topK: u32('topK'),
    topP: f32('topP'),
    repetitionPenalty: f32('repetitionPenalty'),
    seed: [u32('seedLow'), u32('seedHigh')],
    counter: u32('counter'),
    active: u32('active') !== 0,
  };
}

const clamp = (logit: number): number => Math.min(1e30, Math.max(-1e30, logit));

/** Logits of a slot, made finite as documented, after Hugging Face's repetition penalty. */
export function penalisedLogits({ vocab, stride }: SamplingProblem, inputs: HostArrays, slot: number): Float64Array {
  const { repetitionPenalty } = readSlotParams(inputs['sampling']!, slot);
  const words = seenWords(vocab);
  const out = new Float64Array(vocab);
  for (let id = 0; id < vocab; id++) {
    const raw = inputs['logits']![slot * stride + id]!;
    let logit = Number.isNaN(raw) ? -1e30 : clamp(raw);
    if (((inputs['seen']![slot * words + (id >>> 5)]! >>> (id & 31)) & 1) === 1) {
      logit = clamp(logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty);
    }
    // The kernels compare in f32.
    out[id] = Math.fround(logit) || 0;
  }
  return out;
}

/** The order of an f32 as a u32. */
export function keyOf(logit: number): number {
  const bits = new Uint32Array(Float32Array.of(logit || 0).buffer)[0]!;
  return bits >= 0x80000000 ? ~bits >>> 0 : (bits | 0x80000000) >>> 0;
}

/** (key, id) of the best token of each tile; slots that aren't active keep what `before` holds. */
export function partialsReference(problem: ArgmaxProblem, inputs: HostArrays, before: ArrayLike<number>): number[] {
  const { slots, vocab, slice: [first, end] = [0, vocab], tiles = partialsPerSlot(end - first) } = problem;
  const partials = Array.from(before);
  for (let slot = 0; slot < slots; slot++) {
    if (!readSlotParams(inputs['sampling']!, slot).active) continue;
    const logits = penalisedLogits(problem, inputs, slot);
    for (let tile = 0; tile < tiles; tile++) {
      const from = first + tile * ARGMAX_TILE;
      let best = from;
      for (let id = from; id < Math.min(from + ARGMAX_TILE, end); id++) if (logits[id]! > logits[best]!) best = id;
      partials.splice((slot * tiles + tile) * 2, 2, ...(from < end ? [keyOf(logits[best]!), best] : [0, NO_TOKEN]));
    }
  }
  return partials;
}
