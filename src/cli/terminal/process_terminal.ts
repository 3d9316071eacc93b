/**
 * Room: how the command line looks: this process's terminal (here), colours (style.ts), bars (progress_meter.ts), help
 * (help.ts). command.ts (..) says what a command sees of it.
 */

import type { Terminal } from '../command.js';
import { ProgressMeter } from './progress_meter.js';
import { hasColour, styleWith } from './style.js';

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
        const shown = part ? meter.bar(part, width, style.err) : line.slice(0, width);
        stderr.write(`\r\x1b[K${shown}`);
        progressShown = true;
      } else if (part?.bytes === true && now - toldAt >= PLAIN_LINE_MS) {
        toldAt = now;
        stderr.write(`splitkv: ${meter.text(part)}\n`);
      }
    },
  };
}
