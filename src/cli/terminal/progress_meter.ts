import { formatBytes } from '../../base/math.js';
import type { ProgressPart } from '../../app/shared/progress.js';
import type { Style } from './style.js';

/** The rate is that of the last so many ms. */
const WINDOW_MS = 8000;
/** Sooner it says nothing. */
const LEAST_MS = 500;
const BAR = 24;
const LEAST_BAR = 8;

/** How far something counted is, how fast it goes, and when it will be done. */
export class ProgressMeter {
  #what: string | undefined;
  #samples: { readonly at: number; readonly done: number }[] = [];

  /** @param now ms @returns whether it is something else than before */
  add({ what, done }: ProgressPart, now: number): boolean {
    const isNew = what !== this.#what;
    if (isNew) this.#samples = [];
    this.#what = what;
    this.#samples.push({ at: now, done });
    // One older than the window stays, so that there is always something to compare with.
    while (this.#samples.length > 2 && this.#samples[1]!.at < now - WINDOW_MS) this.#samples.shift();
    return isNew;
  }

  /** A second; undefined while nothing is known. */
  #rate(): number | undefined {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (!first || !last || last.at - first.at < LEAST_MS || last.done <= first.done) return undefined;
    return ((last.done - first.done) / (last.at - first.at)) * 1000;
  }

  /** "downloading 12%, 1.2 GiB of 9.8 GiB, 31 MiB/s, 4 min 40 s left" */
  text(part: ProgressPart): string {
    return `${part.what} ${percent(part)}, ${this.#figures(part).join(', ')}`;
  }

  /** The same with a bar, in so many columns: what there is no room for is left out from the end. */
  bar(part: ProgressPart, width: number, style: Style): string {
    const figures = this.#figures(part);
    const head = `${part.what} `;
    const tail = (count: number): string => ` ${[percent(part).padStart(4), ...figures.slice(0, count)].join('  ')}`;
    let count = figures.length;
    while (count > 0 && head.length + LEAST_BAR + tail(count).length > width) count--;
    const room = Math.min(BAR, width - head.length - tail(count).length);
    if (room < LEAST_BAR) return this.text(part).slice(0, width);
    const filled = Math.round(fraction(part) * room);
    return `${head}${style('cyan', '█'.repeat(filled))}${style('dim', '░'.repeat(room - filled))}${tail(count)}`;
  }

  #figures({ done, total, bytes }: ProgressPart): string[] {
    const show = (value: number): string => (bytes ? formatBytes(Math.round(value)) : String(Math.round(value)));
    const rate = this.#rate();
    return [
      `${show(done)} of ${show(total)}`,
      ...(rate === undefined || !bytes ? [] : [`${show(rate)}/s`]),
      ...(rate === undefined || done >= total ? [] : [`${timeText((total - done) / rate)} left`]),
    ];
  }
}

const fraction = ({ done, total }: ProgressPart): number => (total > 0 ? Math.min(1, done / total) : 0);
const percent = (part: ProgressPart): string => `${Math.floor(fraction(part) * 100)}%`;

/** "40 s", "4 min 40 s", "2 h 5 min" */
export function timeText(seconds: number): string {
  const whole = Math.max(1, Math.ceil(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
