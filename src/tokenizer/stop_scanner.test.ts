import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { StopScanner } from './stop_scanner.js';

/** All that comes out for these pieces, and what it stopped at. */
function scan(stops: string[], pieces: string[]) {
  const scanner = new StopScanner(stops);
  let text = '';
  for (const piece of pieces) {
    const step = scanner.push(piece);
    text += step.text;
    if (step.stopped !== undefined) return { text, stopped: step.stopped };
  }
  return { text: text + scanner.flush(), stopped: undefined };
}

describe('StopScanner', () => {
  it('stops before the string, wherever the pieces are cut', () => {
    expect(scan(['\n\n'], ['one\n', '\ntwo'])).toEqual({ text: 'one', stopped: '\n\n' });
    expect(scan(['</end>'], ['a<', '/', 'en', 'd>b'])).toEqual({ text: 'a', stopped: '</end>' });
  });

  it('holds back only what may begin a stop string', () => {
    const scanner = new StopScanner(['User:', 'aab']);
    expect(scanner.push('Hello Us')).toEqual({ text: 'Hello ' });
    expect(scanner.push('ed')).toEqual({ text: 'Used' });
    expect(scanner.push('aa')).toEqual({ text: '' });
    expect(scanner.push('a')).toEqual({ text: 'a' });
    expect(scanner.flush()).toBe('aa');
    expect(scanner.flush()).toBe('');
  });

  it('stops at the string that is complete first, and of two at the longer', () => {
    expect(scan(['abcd', 'bc'], ['xabc'])).toEqual({ text: 'xa', stopped: 'bc' });
    expect(scan(['bc', 'abc'], ['xa', 'bc'])).toEqual({ text: 'x', stopped: 'abc' });
  });

  it('gives nothing after the stop', () => {
    const scanner = new StopScanner(['.']);
    expect(scanner.push('one. two')).toEqual({ text: 'one', stopped: '.' });
    expect(scanner.push(' three')).toEqual({ text: '', stopped: '.' });
    expect(scanner.flush()).toBe('');
  });

  it('lets everything pass without stop strings, and refuses an empty one', () => {
    expect(scan([], ['a', 'b'])).toEqual({ text: 'ab', stopped: undefined });
    expect(() => new StopScanner(['x', ''])).toThrow(/stop string is empty/);
  });

  it('agrees with a search of the whole text, however it is cut', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 24 });
    const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 9 }), {
      maxLength: 4,
    });
    fc.assert(
      fc.property(stops, fc.array(letters), (strings, pieces) => {
        const whole = pieces.join('');
        let end = 0;
        const ends = () =>
          strings.filter((stop) => whole.slice(0, end).endsWith(stop)).sort((a, b) => b.length - a.length)[0];
        while (end < whole.length && ends() === undefined) end++;
        const stopped = ends();
        const text = stopped === undefined ? whole : whole.slice(0, end - stopped.length);
        expect(scan(strings, pieces)).toEqual({ text, stopped });
      }),
      { numRuns: 2000 },
    );
  });

  it('looks at a letter a few times for each stop string, however long these are', () => {
    const half = 'a '.repeat(120);
    const stops = Array.from({ length: 255 }, (_, i) => `${half}${i}`);
    const calls = (['charCodeAt', 'endsWith', 'indexOf', 'startsWith', 'slice'] as const).map((name) =>
      vi.spyOn(String.prototype, name),
    );
    try {
      const scanner = new StopScanner(stops);
      const built = calls.reduce((sum, { mock }) => sum + mock.calls.length, 0);
      expect(built).toBeLessThan(8 * stops.join('').length);
      for (let i = 0; i < 400; i++) scanner.push('a ');
      const scanned = calls.reduce((sum, { mock }) => sum + mock.calls.length, 0) - built;
      expect(scanned).toBeLessThan(800 * stops.length * 8);
      expect(scanner.flush()).toBe(half);
    } finally {
      for (const call of calls) call.mockRestore();
    }
  });

  it('refuses more letters than it can keep', () => {
    expect(() => new StopScanner(['x'.repeat(40_000), 'y'.repeat(40_000)])).toThrow(/80,000 letters; .* 65,536/);
  });
});
