import { NO_TOKEN } from './params.js';

/** One element of the buffer `controls`: eight little-endian 4-byte fields in this order (controls.wgsl). */
export const CONTROL_BYTES = 32;

export interface ControlValues {
  /** The position of the step that samples from the prompt, which feeds no token; undefined for a request that goes on. */
  readonly first?: number | undefined;
  /** The position at which nothing was generated yet; may be below 0 where that was before the cache's beginning. */
  readonly begin: number;
  /** Not all tokens are allowed. */
  readonly someAllowed?: boolean | undefined;
  readonly minTokens?: number | undefined;
  readonly repetitionPenalty?: number | undefined;
  readonly frequencyPenalty?: number | undefined;
  readonly presencePenalty?: number | undefined;
  readonly minP?: number | undefined;
}

/** What a count holds besides, where the token ends the text. */
export const ENDS_TEXT = 0x80000000;
/** Bounds of a bias, as of logits. */
export const LARGEST_LOGIT = 1e30;
/**
 * The highest temperature beside controls: at hotter ones tokens that were taken out, whose logit is -1e30, could be drawn. Logits of
 * models are far too small for it to change anything.
 */
export const HOTTEST = 1e27;

export function controlBytes(values: ControlValues): DataView {
  const { first = NO_TOKEN, begin, minTokens = 0, repetitionPenalty = 1 } = values;
  const { frequencyPenalty = 0, presencePenalty = 0, minP = 0 } = values;
  const view = new DataView(new ArrayBuffer(CONTROL_BYTES));
  const isOn = values.someAllowed ? 2 : 1;
  for (const [field, value] of [isOn, begin, first, minTokens].entries()) view.setUint32(field * 4, value, true);
  const reach = minP > 0 ? -Math.log(minP) : 3e38;
  for (const [field, value] of [repetitionPenalty, frequencyPenalty, presencePenalty, reach].entries()) {
    view.setFloat32(16 + field * 4, value, true);
  }
  return view;
}
