/** Models that the scale suite makes itself; apart from their configs, so that naming them loads nothing. */
export const SCALE_MODELS = ['smollm2-135m', 'qwen2.5-0.5b'] as const;
export type ScaleModel = (typeof SCALE_MODELS)[number];

export const isScaleModel = (name: string): name is ScaleModel => (SCALE_MODELS as readonly string[]).includes(name);
