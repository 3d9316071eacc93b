import { formatBytes } from '../../base/math.js';
import type { LoadProgress } from '../../index.js';

export const progressLine = (progress: LoadProgress): string =>
  lineOf(progress) + (progress.waiting ? `; ${progress.waiting}` : '');

function lineOf(progress: LoadProgress): string {
  const { phase, loadedBytes, totalBytes, tensorsLoaded, tensorsTotal, kernelsCompiled, kernelsTotal } = progress;
  if (phase === 'download') return `downloading: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}`;
  if (phase === 'kernels') return `compiling kernels: ${kernelsCompiled} of ${kernelsTotal}`;
  if (phase === 'profile') return progress.what ?? 'measuring heads';
  if (phase !== 'weights') return phase === 'ready' ? 'ready' : `loading ${phase}`;
  return `loading weights: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}, ${tensorsLoaded} of ${tensorsTotal} tensors`;
}

/** How much of something counted is done. Plain data. */
export interface ProgressPart {
  readonly what: string;
  readonly done: number;
  readonly total: number;
  /** They are bytes. */
  readonly bytes: boolean;
}

/** The same in numbers, where there are any. */
function progressPart(progress: LoadProgress): ProgressPart | undefined {
  const { phase, loadedBytes, totalBytes, kernelsCompiled, kernelsTotal } = progress;
  if (phase === 'kernels')
    return { what: 'compiling kernels', done: kernelsCompiled, total: kernelsTotal, bytes: false };
  if ((phase !== 'download' && phase !== 'weights') || totalBytes === 0) return undefined;
  return {
    what: phase === 'download' ? 'downloading' : 'loading weights',
    done: loadedBytes,
    total: totalBytes,
    bytes: true,
  };
}

/** Takes a load's progress, and says what is new of it. */
export function progressLines(say: (line: string, part?: ProgressPart) => void): (progress: LoadProgress) => void {
  let last = '';
  return (progress) => {
    const line = progressLine(progress);
    if (line !== last) say(line, progressPart(progress));
    last = line;
  };
}
