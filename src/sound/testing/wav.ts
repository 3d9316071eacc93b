/** A tone of so many samples, with another above it, so that no frame is silent. */
export const tone = (count: number, hertz = 440, rate = 16_000): Float32Array<ArrayBuffer> =>
  Float32Array.from(
    { length: count },
    (_, i) => 0.6 * Math.sin((2 * Math.PI * hertz * i) / rate) + 0.2 * Math.sin((2 * Math.PI * 3.3 * hertz * i) / rate),
  );

export interface WavOptions {
  readonly rate?: number;
  readonly bits?: 8 | 16 | 24 | 32 | 64;
  readonly isFloat?: boolean;
  /** How often the samples stand side by side. */
  readonly channels?: number;
  /** A format of 40 bytes, whose coding stands at its end. */
  readonly extensible?: boolean;
}

/** The file that has these samples. */
export function wavOf(
  samples: ArrayLike<number>,
  { rate = 16_000, bits = 16, isFloat = false, channels = 1, extensible = false }: WavOptions = {},
): Uint8Array<ArrayBuffer> {
  const width = bits / 8;
  const size = samples.length * channels * width;
  const format = extensible ? 40 : 16;
  const bytes = new Uint8Array(28 + format + size);
  const view = new DataView(bytes.buffer);
  const tag = (at: number, text: string): void => bytes.set(new TextEncoder().encode(text), at);
  tag(0, 'RIFF');
  view.setUint32(4, bytes.length - 8, true);
  tag(8, 'WAVEfmt ');
  view.setUint32(16, format, true);
  view.setUint16(20, extensible ? 0xfffe : isFloat ? 3 : 1, true);
  view.setUint16(22, channels, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * channels * width, true);
  view.setUint16(32, channels * width, true);
  view.setUint16(34, bits, true);
  if (extensible) view.setUint16(44, isFloat ? 3 : 1, true);
  tag(20 + format, 'data');
  view.setUint32(24 + format, size, true);
  const whole = (value: number): number =>
    Math.max(-(2 ** (bits - 1)), Math.min(2 ** (bits - 1) - 1, Math.round(value * 2 ** (bits - 1))));
  for (let i = 0; i < samples.length * channels; i++) {
    const value = samples[Math.floor(i / channels)]!;
    const at = 28 + format + i * width;
    if (isFloat && bits === 64) view.setFloat64(at, value, true);
    else if (isFloat) view.setFloat32(at, value, true);
    else if (bits === 8) view.setUint8(at, whole(value) + 128);
    else if (bits === 16) view.setInt16(at, whole(value), true);
    else if (bits === 32) view.setInt32(at, whole(value), true);
    else {
      view.setUint16(at, whole(value) & 0xffff, true);
      view.setInt8(at + 2, whole(value) >> 16);
    }
  }
  return bytes;
}
