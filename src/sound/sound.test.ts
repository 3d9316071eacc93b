import { describe, expect, test } from 'vitest';
import { Random } from '../base/random.js';
import { decodeSound } from './decode.js';
import { MEL_BINS } from './limits.js';
import { framesOf, melFrames } from './mel.js';
import { resample } from './resample.js';
import { tone, wavOf, type WavOptions } from './testing/wav.js';
import { readWav } from './wav.js';
import { wavFile } from './wav_file.js';

/** As transformers' feature extractor pads, unfolds and transforms, each sum by its definition; frames that the mask leaves. */
function plainFrames(given: readonly number[]): number[][] {
  const padded = [
    ...new Array<number>(160).fill(0),
    ...given,
    ...new Array<number>((128 - (given.length % 128)) % 128).fill(0),
  ];
  const mel = (hertz: number): number => 2595 * Math.log10(1 + hertz / 700);
  const corners = Array.from({ length: 130 }, (_, i) => 700 * (10 ** ((mel(8000) * i) / 129 / 2595) - 1));
  const frames: number[][] = [];
  for (let first = 0; first + 321 <= padded.length; first += 160) {
    // Its last sample is real.
    if (first + 320 - 160 >= given.length) break;
    const sums = new Array<number>(128).fill(0);
    for (let bin = 0; bin <= 256; bin++) {
      let [re, im] = [0, 0];
      for (let i = 0; i < 320; i++) {
        const value = padded[first + i]! * Math.sin((Math.PI * i) / 320) ** 2;
        re += value * Math.cos((2 * Math.PI * bin * i) / 512);
        im += value * Math.sin((2 * Math.PI * bin * i) / 512);
      }
      const hertz = bin * 31.25;
      for (let m = 0; m < 128; m++) {
        const up = (hertz - corners[m]!) / (corners[m + 1]! - corners[m]!);
        const down = (corners[m + 2]! - hertz) / (corners[m + 2]! - corners[m + 1]!);
        sums[m]! += Math.sqrt(re ** 2 + im ** 2) * Math.max(0, Math.min(up, down));
      }
    }
    frames.push(sums.map((sum) => Math.log(sum + 0.001)));
  }
  return frames;
}

describe('log-mel frames', () => {
  test.each([0, 1, 160, 161, 320, 321, 1000, 2560])('%d samples: as by the definition', (count) => {
    const samples = new Random(count + 1).normals(count, 0.3);
    const expected = plainFrames([...samples]);
    expect(framesOf(count)).toBe(expected.length);
    const found = melFrames(samples);
    expect(found.length).toBe(expected.length * MEL_BINS);
    for (const [frame, row] of expected.entries())
      for (const [bin, value] of row.entries()) expect(found[frame * MEL_BINS + bin]).toBeCloseTo(value, 5);
  });

  test('30 s have as many as become 750 rows, and silence is the floor', () => {
    expect(framesOf(480_000)).toBe(2999);
    expect(new Set(melFrames(new Float32Array(1000)))).toEqual(new Set([Math.fround(Math.log(0.001))]));
  });
});

describe('WAV files', () => {
  const samples = tone(500);
  const kinds: WavOptions[] = [
    { bits: 8 },
    { bits: 16 },
    { bits: 24, channels: 2 },
    { bits: 32, extensible: true },
    { bits: 32, isFloat: true },
    { bits: 64, isFloat: true, extensible: true, channels: 3 },
  ];
  test.each(kinds)('%j', async (kind) => {
    const found = await decodeSound(wavOf(samples, kind));
    expect(found.length).toBe(samples.length);
    const step = kind.isFloat ? 1e-7 : 2 ** -kind.bits!;
    for (const [i, value] of found.entries()) expect(Math.abs(value - samples[i]!)).toBeLessThan(step + 1e-7);
  });

  test('what is written is read', () => {
    expect(wavFile(samples)).toEqual(wavOf(samples));
    expect(readWav(wavFile(Float32Array.of(-1.5, 1.5, 0.5))).samples).toEqual(
      Float32Array.of(-1, 32_767 / 32_768, 0.5),
    );
  });

  test('the rest of a file whose writer knew no size; what lies between its chunks', () => {
    const bytes = wavOf(samples);
    new DataView(bytes.buffer).setUint32(40, 0xffffffff, true);
    expect(readWav(bytes).samples.length).toBe(500);
    const [head, body] = [bytes.subarray(0, 36), bytes.subarray(36)];
    const between = [...new TextEncoder().encode('LIST'), 3, 0, 0, 0, 1, 2, 3, 0];
    expect(readWav(Uint8Array.from([...head, ...between, ...body])).samples).toEqual(readWav(bytes).samples);
  });

  test('what is refused, before anything is decoded', async () => {
    const refused = (change: (view: DataView, bytes: Uint8Array) => void) => {
      const bytes = wavOf(samples);
      change(new DataView(bytes.buffer), bytes);
      return expect(decodeSound(bytes)).rejects;
    };
    await refused((view) => view.setUint16(20, 6, true)).toThrow(/coding 6; expected PCM/);
    await refused((view) => view.setUint16(34, 12, true)).toThrow(/PCM in 12 bits/);
    await refused((view) => view.setUint16(22, 0, true)).toThrow(/0 channels/);
    await refused((view) => view.setUint32(24, 0, true)).toThrow(/0 Hz/);
    await refused((view) => view.setUint16(32, 7, true)).toThrow(/7 bytes for 16 bits/);
    await refused((view) => view.setUint32(16, 4, true)).toThrow(/format has 4 bytes/);
    await refused((view) => view.setUint32(40, 2 ** 31, true)).toThrow(/says 2147483648 bytes of samples and has 1000/);
    await refused((view) => view.setUint32(16, 2 ** 32 - 1, true)).toThrow(/without samples/);
    await refused((_view, bytes) => bytes.set([120], 12)).toThrow(/before its format/);
    await refused((_view, bytes) => bytes.set([120], 36)).toThrow(/without samples/);
    await refused((_view, bytes) => bytes.set([120], 0)).toThrow(/no WAV file is decoded in pages alone.*ffmpeg/);
    await expect(decodeSound(wavOf(new Float32Array(31 * 1000), { rate: 1000 }))).rejects.toThrow(
      /of 31\.0 s: at most 30 s/,
    );
    await expect(decodeSound(new Float32Array(16_000 * 30 + 100))).rejects.toThrow(/cut it into pieces/);
    await expect(decodeSound(Float32Array.of(NaN))).rejects.toThrow(/no numbers/);
    await expect(decodeSound(new Uint8Array(5 * 2 ** 20))).rejects.toThrow(/at most 4\.0 MiB/);
    await expect(decodeSound('https://example.com/a.wav')).rejects.toThrow(/recording https.*only data: URLs/);
    await expect(decodeSound('data:audio/wav,abc')).rejects.toThrow(/data:audio\/wav;base64/);
    await expect(decodeSound(5 as never)).rejects.toThrow(/a recording is given as/);
  });

  test('as a Blob, an ArrayBuffer and a data: URL', async () => {
    const bytes = wavOf(samples);
    const expected = await decodeSound(bytes);
    expect(await decodeSound(new Blob([bytes]))).toEqual(expected);
    expect(await decodeSound(bytes.buffer)).toEqual(expected);
    expect(await decodeSound(`data:audio/wav;base64,${Buffer.from(bytes).toString('base64')}`)).toEqual(expected);
    expect(await decodeSound(samples)).toEqual(samples);
  });
});

describe('other rates', () => {
  const sine = (count: number, hertz: number, rate: number): Float32Array<ArrayBuffer> =>
    Float32Array.from({ length: count }, (_, i) => Math.sin((2 * Math.PI * hertz * i) / rate));
  const worst = (found: Float32Array, expected: Float32Array): number =>
    found.subarray(200, -200).reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i + 200]!)), 0);

  test.each([8000, 11_025, 22_050, 44_100, 48_000, 96_000, 44_101])('%d Hz', (rate) => {
    for (const hertz of [0.02, 0.2, 0.4].map((part) => part * Math.min(rate, 16_000))) {
      const found = resample(sine(rate / 4, hertz, rate), rate);
      expect(Math.abs(found.length - 4000)).toBeLessThanOrEqual(1);
      expect(worst(found, sine(found.length, hertz, 16_000)), `${hertz}`).toBeLessThan(1e-3);
    }
    // What 16 kHz have no place for.
    if (rate > 20_000)
      expect(worst(resample(sine(rate / 4, 9500, rate), rate), new Float32Array(5000))).toBeLessThan(1e-3);
  });
});
