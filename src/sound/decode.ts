/**
 * Room: recordings of prompts, before a model hears them: their samples (here; wav.ts, resample.ts), and what an encoder is
 * given of them (mel.ts). No GPU; loaded by `import()` where a prompt has sound.
 */

import { formatError, limitError, messageOf, unsupportedError, usageError } from '../base/errors.js';
import { formatBytes } from '../base/math.js';
import { givenBytes, type GivenFile } from '../images/given_bytes.js';
import { SAMPLE_RATE, SOUND_LIMITS } from './limits.js';
import { monoOf } from './mono.js';
import { resample } from './resample.js';
import { checkSeconds, isWav, readWav, type Recording } from './wav.js';

/**
 * A recording of a prompt: the bytes of a WAV file (in a page of any that the browser plays, such as MP3, Opus or AAC), a `data:` URL of them, in
 * a page a URL of its own origin, or samples of one channel at 16 kHz, from -1 to 1.
 */
export type SoundSource = GivenFile | Float32Array;

/**
 * Its samples, of one channel at 16 kHz.
 * @throws SplitkvError `usage` for what is no recording or an address elsewhere, `format` for a broken file, `unsupported` for one that
 *   isn't decoded here, `limit` for too many bytes or seconds
 */
export async function decodeSound(source: SoundSource): Promise<Float32Array<ArrayBuffer>> {
  const samples = source instanceof Float32Array ? Float32Array.from(source) : await decodeFile(source);
  checkSeconds(samples.length / SAMPLE_RATE);
  if (!samples.every(Number.isFinite))
    throw formatError("a recording has samples that are no numbers: it can't be heard");
  return samples;
}

async function decodeFile(source: GivenFile): Promise<Float32Array<ArrayBuffer>> {
  const bytes = await givenBytes(source, 'a recording');
  if (!bytes)
    throw usageError('a recording is given as bytes, a Blob, a data: URL, or a Float32Array of samples at 16 kHz');
  const isPlain = isWav(bytes);
  const most = isPlain ? SOUND_LIMITS.bytes : SOUND_LIMITS.compressedBytes;
  if (bytes.length > most) {
    throw limitError(
      `a recording of ${formatBytes(bytes.length)}: at most ${formatBytes(most)} are read; cut it into pieces of ${SOUND_LIMITS.seconds} s`,
    );
  }
  const { samples, rate } = isPlain ? readWav(bytes) : await decodeOther(bytes);
  return resample(samples, rate);
}

/** By the browser. */
async function decodeOther(bytes: Uint8Array<ArrayBuffer>): Promise<Recording> {
  if (typeof OfflineAudioContext !== 'function') {
    throw unsupportedError(
      'a recording that is no WAV file is decoded in pages alone; convert it first: ffmpeg -i FILE -ac 1 -ar 16000 FILE.wav',
    );
  }
  try {
    const decoded = await new OfflineAudioContext(1, 1, SAMPLE_RATE).decodeAudioData(bytes.buffer);
    return { rate: decoded.sampleRate, samples: monoOf(decoded) };
  } catch (error) {
    throw formatError(`a recording that this browser can't decode: ${messageOf(error)}`, error);
  }
}
