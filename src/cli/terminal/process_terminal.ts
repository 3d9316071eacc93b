/**
 * Room: how the command line looks: this process's terminal with its bars (here), colours (style.ts), help (help.ts).
 * command.ts (..) says what a command sees of it.
 */

import { type ProgressPart, ProgressMeter } from '../../app/shared/progress.js';
import { formatBytes } from '../../base/math.js';
import type { Terminal } from '../command.js';
import { hasColour, type Style, styleWith } from './style.js';

/** Where a stream isn't a terminal, how often something long says how far it is. */
const PLAIN_LINE_MS = 5000;

/** Bars are drawn no more often. */
const DRAW_MS = 80;

const WARNING = 'splitkv: warning:';

/** Terminals that don't know how wide they are report 0. */
const columnsOf = ({ columns }: { readonly columns?: number }): number => columns || 80;

export function processTerminal(signal: AbortSignal): Terminal {
  const { stdout, stderr } = process;
  const style = { out: styleWith(hasColour(stdout)), err: styleWith(hasColour(stderr)) };
  const meter = new ProgressMeter();
  let progressShown = false;
  let toldAt = performance.now();
  let drawnAt = 0;
  const clear = (): void => {
    if (progressShown) stderr.write('\r\x1b[K');
    progressShown = false;
  };
  return {
    signal,
    style,
    columns: Math.min(stdout.isTTY ? columnsOf(stdout) : 100, 120),
    ...(stdout.isTTY && { width: columnsOf(stdout) }),
    write: (text) => {
      clear();
      return stdout.write(text) ? Promise.resolve() : new Promise((resolve) => stdout.once('drain', resolve));
    },
    note: (line) => {
      clear();
      const warns = line.startsWith(WARNING);
      stderr.write(`${warns ? style.err('yellow', WARNING) + line.slice(WARNING.length) : line}\n`);
    },
    progress: (line, part) => {
      const now = performance.now();
      const isNew = !part || meter.add(part, now);
      if (part && isNew) toldAt = now;
      if (stderr.isTTY) {
        if (!isNew && now - drawnAt < DRAW_MS) return;
        drawnAt = now;
        const width = columnsOf(stderr) - 1;
        const shown = part ? progressBar(part, meter.rate, width, style.err) : line.slice(0, width);
        stderr.write(`\r\x1b[K${shown}`);
        progressShown = true;
      } else if (part?.bytes === true && now - toldAt >= PLAIN_LINE_MS) {
        toldAt = now;
        stderr.write(`splitkv: ${progressText(part, meter.rate)}\n`);
      }
    },
  };
}

const BAR = 24;
const LEAST_BAR = 8;

/** "downloading 12%, 1.2 GiB of 9.8 GiB, 31 MiB/s, 4 min 40 s left". @param rate a second, where it is known */
export const progressText = (part: ProgressPart, rate: number | undefined): string =>
  `${part.what} ${percent(part)}, ${figures(part, rate).join(', ')}`;

/** The same with a bar, in so many columns: what there is no room for is left out from the end. */
export function progressBar(part: ProgressPart, rate: number | undefined, width: number, style: Style): string {
  const shown = figures(part, rate);
  const head = `${part.what} `;
  const tail = (): string => ` ${[percent(part).padStart(4), ...shown].join('  ')}`;
  while (shown.length > 0 && head.length + LEAST_BAR + tail().length > width) shown.pop();
  const room = Math.min(BAR, width - head.length - tail().length);
  if (room < LEAST_BAR) return progressText(part, rate).slice(0, width);
  const filled = Math.round(fraction(part) * room);
  return `${head}${style('cyan', '█'.repeat(filled))}${style('dim', '░'.repeat(room - filled))}${tail()}`;
}

function figures({ done, total, bytes }: ProgressPart, rate: number | undefined): string[] {
  const show = (value: number): string => (bytes ? formatBytes(Math.round(value)) : String(Math.round(value)));
  return [
    `${show(done)} of ${show(total)}`,
    ...(rate === undefined || !bytes ? [] : [`${show(rate)}/s`]),
    ...(rate === undefined || done >= total ? [] : [`${timeText((total - done) / rate)} left`]),
  ];
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
