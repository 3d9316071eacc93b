/** What the scale suite runs, with random weights; apart from their configs, so that naming them loads nothing. */
export const SCALE_MODELS = ['smollm2-135m', 'gemma3-270m', 'lfm2-350m', 'qwen3.5-0.8b', 'qwen2.5-0.5b'] as const;
/** Models that can be named in place of a folder: those, some that software devices finish in a minute, one with latent attention, and two that take images. */
export const MADE_MODELS = [
  'random-14m',
  'random-46m',
  'random-mla',
  'random-vlm',
  'smolvlm-256m',
  ...SCALE_MODELS,
] as const;
export type ScaleModel = (typeof MADE_MODELS)[number];

export const isScaleModel = (name: string): name is ScaleModel => (MADE_MODELS as readonly string[]).includes(name);
