import type { Expected, HostArrays } from '../../../src/gpu/testing/kernel_case.js';
import { CONTROL_BYTES, ENDS_TEXT } from '../controls.js';
import { NO_TOKEN, type SliceProblem, seenWords } from '../params.js';

export interface SlotControls {
  readonly isOn: boolean;
  readonly someAllowed: boolean;
  readonly begin: number;
  readonly first: number;
  readonly minTokens: number;
  readonly repetitionPenalty: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly reach: number;
}

export function readControls(controls: ArrayLike<number>, slot: number): SlotControls {
  const words = Uint32Array.from({ length: CONTROL_BYTES / 4 }, (_, i) => controls[(slot * CONTROL_BYTES) / 4 + i]!);
  const [isOn, begin, first, minTokens] = words;
  const [repetitionPenalty, frequencyPenalty, presencePenalty, reach] = new Float32Array(words.buffer, 16);
  return {
    isOn: isOn !== 0,
    someAllowed: isOn === 2,
    begin: begin!,
    first: first!,
    minTokens: minTokens!,
    repetitionPenalty: repetitionPenalty!,
    frequencyPenalty: frequencyPenalty!,
    presencePenalty: presencePenalty!,
    reach: reach!,
  };
}

const limited = (logit: number): number => Math.min(1e30, Math.max(-1e30, logit));

/** A logit after a bias, the repetition penalty, and the penalties of a token that was generated `count` times: vLLM's order. */
export function controlledLogit(
  logit: number,
  bias: number,
  isSeen: boolean,
  count: number,
  own: Pick<SlotControls, 'repetitionPenalty' | 'frequencyPenalty' | 'presencePenalty'>,
): number {
  const biased = limited((Number.isNaN(logit) ? -1e30 : limited(logit)) + bias);
  const factor = biased > 0 ? 1 / own.repetitionPenalty : own.repetitionPenalty;
  const penalised = limited(isSeen ? biased * factor : biased);
  if (count === 0) return penalised;
  return limited(penalised - own.frequencyPenalty * count - own.presencePenalty);
}

export function adjustedReference(problem: SliceProblem, inputs: HostArrays): Expected {
  const { slots, vocab, stride, slice: [from, end] = [0, vocab] } = problem;
  const { logits, seen, biases, tokens, row_info: rowInfo } = inputs as Record<string, Float32Array>;
  const counts: number[] = Array.from(inputs['counts']!);
  const adjusted: (number | undefined)[] = new Array(slots * stride);
  for (let slot = 0; slot < slots; slot++) {
    const own = readControls(inputs['controls']!, slot);
    const position = rowInfo![slot * 2]!;
    const token = tokens![slot]!;
    const feeds = own.isOn && position !== NO_TOKEN && position !== own.first && token >= from && token < end;
    if (feeds) counts[slot * stride + token]!++;
    const generated = (position === NO_TOKEN ? own.first : position) - own.begin;
    for (let id = from; id < end; id++) {
      const at = slot * stride + id;
      const isSeen = ((seen![slot * seenWords(vocab) + (id >>> 5)]! >>> (id & 31)) & 1) === 1;
      const count = counts[at]! % ENDS_TEXT;
      const allowed = (seen![(slots + slot) * seenWords(vocab) + (id >>> 5)]! >>> (id & 31)) & 1;
      const ends = own.isOn && counts[at]! >= ENDS_TEXT && generated < own.minTokens;
      const out = ends || (own.someAllowed && allowed === 0);
      if (out) adjusted[at] = -1e30;
      if (!out && own.isOn) adjusted[at] = controlledLogit(logits![at]!, biases![at]!, isSeen, count, own);
      // NaN and infinities, which stay, can't be compared.
      if (!own.isOn) adjusted[at] = Number.isFinite(logits![at]!) ? logits![at]! : undefined;
    }
  }
  return { adjusted: adjusted as number[], counts };
}
