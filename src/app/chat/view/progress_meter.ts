import { formatBytes } from '../../../base/math.js';
import { type ChatStrings, fill, STRINGS } from '../strings.js';

/** The speed is that of this long; what comes from the disk at first would otherwise count for minutes. */
const WINDOW_MS = 5000;

export interface Pace {
  /** Undefined until it is known. */
  readonly bytesPerSecond: number | undefined;
  readonly secondsLeft: number | undefined;
}

export const NO_PACE: Pace = { bytesPerSecond: undefined, secondsLeft: undefined };

/** Tells the speed of a download, and when it will have ended. */
export class ProgressMeter {
  #samples: { readonly bytes: number; readonly at: number }[] = [];

  /** @param at milliseconds on any clock */
  add(loadedBytes: number, totalBytes: number, at: number): Pace {
    const samples = this.#samples;
    const last = samples.at(-1);
    if (last && loadedBytes < last.bytes) samples.length = 0; // another download
    samples.push({ bytes: loadedBytes, at });
    while (samples.length > 2 && at - samples[1]!.at >= WINDOW_MS) samples.shift();
    const first = samples[0]!;
    const seconds = (at - first.at) / 1000;
    if (seconds < 0.2 || loadedBytes === first.bytes) return NO_PACE;
    const bytesPerSecond = (loadedBytes - first.bytes) / seconds;
    return { bytesPerSecond, secondsLeft: Math.max(0, totalBytes - loadedBytes) / bytesPerSecond };
  }
}

/** "12 MiB of 300 MiB, 5.2 MiB/s, about 55 s left" */
export function progressText(
  loadedBytes: number,
  totalBytes: number,
  pace: Pace,
  strings: ChatStrings = STRINGS,
): string {
  const { bytesPerSecond, secondsLeft } = pace;
  const parts = [fill(strings.progress, { loaded: formatBytes(loadedBytes), total: formatBytes(totalBytes) })];
  if (bytesPerSecond !== undefined) {
    parts.push(fill(strings.progress_speed, { speed: formatBytes(Math.round(bytesPerSecond)) }));
  }
  if (secondsLeft !== undefined && loadedBytes < totalBytes) {
    parts.push(fill(strings.progress_left, { time: duration(secondsLeft, strings) }));
  }
  return parts.join(', ');
}

/** "8 s", "3 min", "2 h" */
export function duration(seconds: number, strings: ChatStrings = STRINGS): string {
  if (seconds < 90) return fill(strings.seconds, { n: Math.max(1, Math.round(seconds)) });
  if (seconds < 90 * 60) return fill(strings.minutes, { n: Math.round(seconds / 60) });
  return fill(strings.hours, { n: Math.round(seconds / 3600) });
}
