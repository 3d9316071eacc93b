import { FFT, FLOOR, FRAME, HOP, MEL_BINS, SAMPLE_RATE } from './limits.js';

/** Frames that so many samples have: each is of samples that are there, and of one more behind it; the first begins half before them. */
export const framesOf = (samples: number): number => Math.max(0, Math.floor((samples - 1) / HOP));

/**
 * As transformers' Gemma4AudioFeatureExtractor makes them: log-mel spectra of magnitudes, under a Hann window.
 * @param samples at 16 kHz
 * @returns f32 [frames][MEL_BINS]
 */
export function melFrames(samples: Float32Array): Float32Array<ArrayBuffer> {
  const frames = framesOf(samples.length);
  const out = new Float32Array(frames * MEL_BINS);
  const filters = melFilters();
  const window = Float64Array.from({ length: FRAME }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / FRAME));
  const [real, imaginary] = [new Float64Array(FFT), new Float64Array(FFT)];
  const magnitudes = new Float64Array(FFT / 2 + 1);
  for (let frame = 0; frame < frames; frame++) {
    real.fill(0);
    imaginary.fill(0);
    for (let i = 0; i < FRAME; i++) {
      const at = frame * HOP + i - FRAME / 2;
      if (at >= 0) real[i] = samples[at]! * window[i]!;
    }
    fourier(real, imaginary);
    for (let bin = 0; bin < magnitudes.length; bin++) magnitudes[bin] = Math.hypot(real[bin]!, imaginary[bin]!);
    for (const [mel, { first, weights }] of filters.entries()) {
      let sum = 0;
      for (let i = 0; i < weights.length; i++) sum += weights[i]! * magnitudes[first + i]!;
      out[frame * MEL_BINS + mel] = Math.log(sum + FLOOR);
    }
  }
  return out;
}

/** A triangle over frequencies: what bins from `first` on weigh. */
interface Filter {
  readonly first: number;
  readonly weights: readonly number[];
}

/** Triangles over the HTK's mel scale, whose corners are their neighbours' tips. */
function melFilters(): Filter[] {
  const highest = 2595 * Math.log10(1 + SAMPLE_RATE / 2 / 700);
  const cornerOf = (at: number): number => 700 * (10 ** ((highest * at) / (MEL_BINS + 1) / 2595) - 1);
  return Array.from({ length: MEL_BINS }, (_, mel) => {
    const [low, tip, high] = [cornerOf(mel), cornerOf(mel + 1), cornerOf(mel + 2)];
    const all = Array.from({ length: FFT / 2 + 1 }, (_value, bin) => {
      const frequency = (bin * SAMPLE_RATE) / FFT;
      return Math.max(0, Math.min((frequency - low) / (tip - low), (high - frequency) / (high - tip)));
    });
    const first = Math.max(
      0,
      all.findIndex((weight) => weight > 0),
    );
    return { first, weights: all.slice(first, all.findLastIndex((weight) => weight > 0) + 1) };
  });
}

/** (cos, sin) of -2 pi k / FFT. */
const turns = Array.from({ length: FFT / 2 }, (_, k) => {
  const angle = (-2 * Math.PI * k) / FFT;
  return [Math.cos(angle), Math.sin(angle)] as const;
});

/** The discrete Fourier transform of FFT numbers, in place: radix 2, in order of the bits turned round. */
function fourier(real: Float64Array, imaginary: Float64Array): void {
  for (let i = 1, j = 0; i < FFT; i++) {
    let bit = FFT / 2;
    for (; j & bit; bit /= 2) j ^= bit;
    j ^= bit;
    if (i >= j) continue;
    [real[i], real[j]] = [real[j]!, real[i]!];
    [imaginary[i], imaginary[j]] = [imaginary[j]!, imaginary[i]!];
  }
  for (let half = 1; half < FFT; half *= 2) {
    for (let first = 0; first < FFT; first += 2 * half) {
      for (let k = 0; k < half; k++) {
        const [cos, sin] = turns[(k * FFT) / (2 * half)]!;
        const [a, b] = [first + k, first + k + half];
        const turned = real[b]! * cos - imaginary[b]! * sin;
        const across = real[b]! * sin + imaginary[b]! * cos;
        real[b] = real[a]! - turned;
        imaginary[b] = imaginary[a]! - across;
        real[a]! += turned;
        imaginary[a]! += across;
      }
    }
  }
}
