import { expect, test } from 'vitest';
import { lineFilter } from '../../../bin/quiet.js';
import { Random } from '../../base/random.js';

const NOISE = ['Uniform', 'Storage'].map(
  (kind) =>
    `Warning: maxDynamic${kind}BuffersPerPipelineLayout artificially reduced from 1000000 to 16 to fit dynamic offset allocation limit.\n`,
);

/** What comes out of pieces, after each of them and at the end. */
function passed(pieces: readonly string[]): string[] {
  let out = '';
  const filter = lineFilter((text) => (out += text));
  const after = pieces.map((piece) => {
    filter.push(piece);
    return out;
  });
  filter.end();
  return [...after, out];
}

test("Dawn's two lines are left out, wherever pieces are cut, and nothing else", () => {
  const [uniform, storage] = NOISE as [string, string];
  const bar = '\r\u001b[Kloading 3%';
  const kept = [
    `one\n${bar}`,
    `\r\u001b[K${storage.replace('limit.', 'limit!')}Warning: another\nWarning: maxDynamic\n`,
    'end\n',
  ];
  const text = uniform + storage + kept[0] + uniform + storage + kept[1] + storage + kept[2];
  const expected = kept.join('');
  const random = new Random(7);
  for (let round = 0; round < 200; round++) {
    const pieces: string[] = [];
    for (let at = 0; at < text.length;) {
      const size = 1 + random.integer(round % 90);
      pieces.push(text.slice(at, at + size));
      at += size;
    }
    expect(passed(pieces).at(-1)).toBe(expected);
  }
});

test('what begins otherwise is passed on at once, and what was held at the end', () => {
  expect(passed(['loading', ' 3%'])).toEqual(['loading', 'loading 3%', 'loading 3%']);
  expect(passed(['Warn', 'ed'])).toEqual(['', 'Warned', 'Warned']);
  expect(passed(['Warning: maxDynamic'])).toEqual(['', 'Warning: maxDynamic']);
});
