import { describe, expect, it } from 'vitest';
import { parseJson, parsePythonJson } from './json.js';

describe('JSON that Python writes', () => {
  it('has infinities and NaN', () => {
    expect(parsePythonJson('{"a": [0.0, Infinity, -Infinity,NaN], "b": {"NaN":NaN}}')).toEqual({
      a: [0, Infinity, -Infinity, Number.NaN],
      b: { NaN: Number.NaN },
    });
    expect(parsePythonJson(' NaN ')).toBeNaN();
  });

  it('keeps these words in texts and keys', () => {
    const value = { Infinity: 'NaN, -Infinity', 'a"NaN': '\\"Infinity\\', 'c\\': ['NaN'], m: '\uFDD0NaN' };
    expect(parsePythonJson(`{"x": NaN, "y": ${JSON.stringify(value)}}`)).toEqual({ x: Number.NaN, y: value });
  });

  it.each([
    '[NaNs]',
    '[xNaN]',
    '[1NaN]',
    '[+Infinity]',
    '[infinity]',
    '["NaN]',
    '["a\\',
    '{NaN: 1}',
    '[Infinity',
    '[1e]',
  ])('is not %s', (text) => {
    expect(() => parsePythonJson(text)).toThrow(SyntaxError);
    expect(() => parseJson(text, 'config.json', parsePythonJson)).toThrow(/^config\.json: not valid JSON/);
  });

  it('may be hostile: long, deep, with quotes that never end', () => {
    for (const text of [
      '"\\'.repeat(200_000),
      `${'['.repeat(200_000)}NaN`,
      `[NaN,${'['.repeat(200_000)}${']'.repeat(200_001)}`,
    ])
      expect(() => parsePythonJson(text)).toThrow(Error);
    expect(parsePythonJson(`[${'"\\"",'.repeat(200_000)}Infinity]`)).toHaveLength(200_001);
    expect(parsePythonJson('{"a": 1, "a": -Infinity, "__proto__": NaN}')).toMatchObject({ a: -Infinity });
  });

  it('is read only where it is asked for', () => {
    expect(() => parseJson('NaN', 'plan.json')).toThrow('plan.json: not valid JSON');
  });
});
