import { describe, expect, test } from 'vitest';
import { ProgressMeter } from '../../app/shared/progress.js';
import { alignedTable } from '../../base/aligned_table.js';
import { fitLines } from './fit_lines.js';
import { progressBar, progressText, timeText } from './process_terminal.js';
import { hasColour, plain, styleWith } from './style.js';

const bytes = (done: number, what = 'downloading') => ({ what, done, total: 100 * 2 ** 20, bytes: true });

describe('progress', () => {
  const after = (seconds: number, megabytes: number): ProgressMeter => {
    const meter = new ProgressMeter();
    for (let at = 0; at <= seconds; at++) meter.add(bytes((at / seconds) * megabytes * 2 ** 20), at * 1000);
    return meter;
  };

  test('the rate and the time left are those of the last seconds', () => {
    const meter = after(20, 20);
    expect(progressText(bytes(20 * 2 ** 20), meter.rate)).toBe(
      'downloading 20%, 20 MiB of 100 MiB, 1.0 MiB/s, 1 min 20 s left',
    );
    // Ten times as fast from now on: after the window nothing of before counts.
    for (let at = 1; at <= 7; at++) meter.add(bytes((20 + at * 10) * 2 ** 20), (20 + at) * 1000);
    meter.add(bytes(95 * 2 ** 20), 30_000);
    expect(progressText(bytes(95 * 2 ** 20), meter.rate)).toMatch(/, \d\.\d MiB\/s, 1 s left$/);
  });

  test('nothing is said of a rate before it is known, nor of time when all is done', () => {
    const meter = new ProgressMeter();
    meter.add(bytes(2 ** 20), 0);
    expect(progressText(bytes(2 ** 20), meter.rate)).toBe('downloading 1%, 1.0 MiB of 100 MiB');
    expect(progressText(bytes(100 * 2 ** 20), after(4, 100).rate)).toBe(
      'downloading 100%, 100 MiB of 100 MiB, 25 MiB/s',
    );
  });

  test('something else begins anew', () => {
    const meter = after(4, 40);
    expect(meter.add({ what: 'compiling kernels', done: 3, total: 12, bytes: false }, 5000)).toBe(true);
    expect(progressText({ what: 'compiling kernels', done: 3, total: 12, bytes: false }, meter.rate)).toBe(
      'compiling kernels 25%, 3 of 12',
    );
  });

  test('a bar is as wide as there is room, and never wider', () => {
    const meter = after(4, 40);
    const part = bytes(40 * 2 ** 20);
    expect(progressBar(part, meter.rate, 200, plain)).toBe(
      `downloading ${'█'.repeat(10)}${'░'.repeat(14)}  40%  40 MiB of 100 MiB  10 MiB/s  6 s left`,
    );
    for (let width = 1; width < 120; width++) {
      expect(progressBar(part, meter.rate, width, plain).length).toBeLessThanOrEqual(width);
    }
    expect(progressBar(part, meter.rate, 50, plain)).toMatch(/^downloading █+░+ {2}40% {2}40 MiB of 100 MiB$/);
  });

  test('times', () => {
    expect([0.2, 59, 61, 3600, 7320].map(timeText)).toEqual(['1 s', '59 s', '1 min 1 s', '1 h 0 min', '2 h 2 min']);
  });
});

test('colours: of terminals, unless NO_COLOR; FORCE_COLOR gives them to files, too', () => {
  const [terminal, file] = [{ isTTY: true }, {}];
  expect(hasColour(terminal, {})).toBe(true);
  expect(hasColour(file, {})).toBe(false);
  expect(hasColour(terminal, { NO_COLOR: '1' })).toBe(false);
  expect(hasColour(terminal, { NO_COLOR: '' })).toBe(true);
  expect(hasColour(terminal, { TERM: 'dumb' })).toBe(false);
  expect(hasColour(file, { FORCE_COLOR: '1' })).toBe(true);
  expect(hasColour(file, { FORCE_COLOR: '' })).toBe(true);
  expect(hasColour(terminal, { FORCE_COLOR: '0' })).toBe(false);
  expect(hasColour(terminal, { FORCE_COLOR: '1', NO_COLOR: '1' })).toBe(false);
  expect(styleWith(true)('red', 'x')).toBe('\u001b[31mx\u001b[39m');
  expect(styleWith(false)('red', 'x')).toBe('x');
});

describe('what is told fits the terminal', () => {
  const heads = ['  plan', 'tokens/s', 'first token', 'memory per rank'];
  const table = alignedTable([heads, ['* single', '99.2', '2.73 s', '28 MiB'], ['  tp+sp', '9', '', '120 MiB']], 1);

  test('what fits, and what goes into a file, stays as it is', () => {
    expect(fitLines(table, 80)).toBe(table);
    expect(fitLines(`${table}${'word '.repeat(40)}`)).toBe(`${table}${'word '.repeat(40)}`);
  });

  test('a table that is too wide goes on below, with its first column', () => {
    expect(fitLines(`on 2 ranks\n\n${table}- x: refused\n`, 36)).toBe(
      [
        'on 2 ranks',
        '',
        '  plan    tokens/s  first token',
        '* single      99.2       2.73 s',
        '  tp+sp          9',
        '',
        '  plan    memory per rank',
        '* single           28 MiB',
        '  tp+sp           120 MiB',
        '- x: refused',
        '',
      ].join('\n'),
    );
  });

  test('prose is cut at spaces, and nothing is lost', () => {
    const text = `pick: ${'one rank waits less than two '.repeat(6)}\n  indented ${'and long '.repeat(12)}`;
    const fitted = fitLines(text, 40);
    for (const line of fitted.split('\n')) expect(line.length, line).toBeLessThanOrEqual(40);
    expect(fitted.trim().split(/\s+/)).toEqual(text.trim().split(/\s+/));
  });
});
