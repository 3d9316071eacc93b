import { formatBytes } from '../../base/math.js';
import type { LoadProgress } from '../../index.js';

export function progressLine(progress: LoadProgress): string {
  const { phase, tensorsLoaded, tensorsTotal, what = 'measuring heads', waiting } = progress;
  const part = progressPart(progress);
  const show = (value: number): string => (part?.bytes ? formatBytes(value) : `${value}`);
  const counted = part && `${part.what}: ${show(part.done)} of ${show(part.total)}`;
  const named = phase === 'profile' ? what : phase === 'ready' ? 'ready' : `loading ${phase}`;
  const tensors = phase === 'weights' ? `, ${tensorsLoaded} of ${tensorsTotal} tensors` : '';
  return `${counted ?? named}${tensors}${waiting ? `; ${waiting}` : ''}`;
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
  if (phase !== 'download' && phase !== 'weights') return undefined;
  const what = phase === 'download' ? 'downloading' : 'loading weights';
  return { what, done: loadedBytes, total: totalBytes, bytes: true };
}

/** Takes a load's progress, and says what is new of it. */
export function progressLines(say: (line: string, part?: ProgressPart) => void): (progress: LoadProgress) => void {
  let last = '';
  return (progress) => {
    const line = progressLine(progress);
    const part = progressPart(progress);
    if (line !== last) say(line, part?.total === 0 ? undefined : part);
    last = line;
  };
}

/** The rate is that of the last so long; what comes from the disk at first would otherwise count for minutes. */
const WINDOW_MS = 8000;
/** Sooner it says nothing. */
const LEAST_MS = 500;

/** How fast something counted goes. */
export class ProgressMeter {
  #what: string | undefined;
  #samples: { readonly at: number; readonly done: number }[] = [];

  /** @param now ms @returns whether it is something else than before */
  add({ what = '', done }: Pick<ProgressPart, 'done'> & Partial<ProgressPart>, now: number): boolean {
    const last = this.#samples.at(-1);
    const isNew = what !== this.#what || (last !== undefined && done < last.done);
    if (isNew) this.#samples = [];
    this.#what = what;
    this.#samples.push({ at: now, done });
    // One older than the window stays, so that there is always something to compare with.
    const inside = this.#samples.findIndex(({ at }) => at >= now - WINDOW_MS);
    this.#samples.splice(0, Math.min(inside - 1, this.#samples.length - 2));
    return isNew;
  }

  /** A second; undefined while nothing is known. */
  get rate(): number | undefined {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!first || !last || last.at - first.at < LEAST_MS || last.done <= first.done) return undefined;
    return ((last.done - first.done) / (last.at - first.at)) * 1000;
  }
}
