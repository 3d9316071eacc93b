import { unsupportedError } from '../base/errors.js';
import { show } from '../base/json.js';

/** What a recording may be at most (one that isn't a WAV is far smaller), and how many a prompt may have. */
export const SOUND_LIMITS = { bytes: 64 * 2 ** 20, compressedBytes: 4 * 2 ** 20, seconds: 30, sounds: 16 } as const;

/** Samples a second that encoders hear. */
export const SAMPLE_RATE = 16_000;
/** Samples of a frame, and between two. */
export const FRAME = 320;
export const HOP = 160;
/** Numbers of a frame that are transformed, with zeros behind its samples. */
export const FFT = 512;
/** Added before the logarithm. */
export const FLOOR = 1e-3;
/** Numbers of a frame. */
export const MEL_BINS = 128;
/** Of a recording. */
export const MOST_FRAMES = (SOUND_LIMITS.seconds * SAMPLE_RATE) / HOP;

/** Rows of a decoder that so many frames become. */
export const soundRows = (frames: number): number => Math.ceil(frames / 4);

/** What stands for them in a prompt, as transformers' Gemma4Processor writes it. */
export const soundText = (rows: number): string => `<|audio>${'<|audio|>'.repeat(rows)}<audio|>`;

/** How frames are made, in the words of a feature extractor. */
const EXTRACTOR: Readonly<Record<string, unknown>> = {
  feature_size: MEL_BINS,
  sampling_rate: SAMPLE_RATE,
  frame_length: FRAME,
  frame_length_ms: (1000 * FRAME) / SAMPLE_RATE,
  hop_length: HOP,
  hop_length_ms: (1000 * HOP) / SAMPLE_RATE,
  fft_length: FFT,
  fft_overdrive: false,
  min_frequency: 0,
  max_frequency: SAMPLE_RATE / 2,
  preemphasis: 0,
  input_scale_factor: 1,
  mel_floor: FLOOR,
  per_bin_mean: null,
  per_bin_stddev: null,
};

/**
 * @param frame samples of a frame, where frames are samples
 * @throws SplitkvError `unsupported` for a model whose frames are others
 */
export function checkExtractor(file: Readonly<Record<string, unknown>>, frame?: number): void {
  const samples = frame && { feature_size: frame, audio_samples_per_token: frame, sampling_rate: SAMPLE_RATE };
  for (const [key, expected] of Object.entries(samples || EXTRACTOR)) {
    const value = file[key] ?? expected;
    if (value !== expected)
      throw unsupportedError(`the model's feature_extractor: ${key} ${show(value)}; expected ${show(expected)}`);
  }
}
