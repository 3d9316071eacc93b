import { Lexer, type Token } from 'marked';
import { expect, test } from 'vitest';
import { mathOptions } from './markdown.js';

const lex = (text: string, ended = true): Token[] =>
  new Lexer({ gfm: true, breaks: true, ...mathOptions(ended) }).lex(text);

/** All tokens of these kinds, wherever they are. */
function found(tokens: unknown, types: readonly string[]): string[] {
  if (typeof tokens !== 'object' || tokens === null) return [];
  const token = tokens as { readonly type?: string; readonly raw?: string };
  const own = token.type !== undefined && types.includes(token.type) ? [token.raw!.trim()] : [];
  return [...own, ...Object.values(tokens).flatMap((inner) => found(inner, types))];
}
const R = String.raw;

test.each([
  [R`\(a_1*b^2*c_2\), $E = mc^2$.`, [R`\(a_1*b^2*c_2\)`, '$E = mc^2$']],
  [R`**so $x_i * y_i$ holds**`, ['$x_i * y_i$']],
  [R`the $n$th, $\$5$ and $$x$$`, ['$n$', R`$\$5$`, '$$x$$']],
  ['$5 and $6 or $7-$8, US$3', []],
  ['$HOME and `$a` and `$b`', []],
  [R`\$a\$, \[x\](y), \[ \], $$$$`, []],
  ['`\\(a\\)`\n\n```\n$$b$$\n```\n\n    \\[c\\]', []],
  ['text\n\\[\na\n+ b\n= c\n> d \\\\\n\\]\nmore', ['\\[\na\n+ b\n= c\n> d \\\\\n\\]']],
  ['- x\n  $$\n  a\n  $$\n- \\[b\\]', ['$$\na\n$$', '\\[b\\]']],
  ['> $$a$$', ['$$a$$']],
  ['| a |\n| - |\n| $b_1$ |', ['$b_1$']],
])('maths of %j', (text, spans) => {
  expect(found(lex(text), ['math'])).toEqual(spans);
});

test.each([
  [R`half \(a_1 * b_2 * c`, R`\(a_1 * b_2 * c`],
  ['half $a_1 * b_2 * c', '$a_1 * b_2 * c'],
  ['$$ a_1 * b\n+ c', '$$ a_1 * b\n+ c'],
])('half a span stays as it was written: %j', (text, half) => {
  expect(found(lex(text, false), ['escape'])).toEqual([half]);
  expect(found(lex(text, false), ['em', 'list'])).toEqual([]);
});

test('money goes on as text while it is written', () => {
  expect(found(lex('it costs $5 and **bold** is', false), ['strong'])).toEqual(['**bold**']);
});

test('hostile signs are read in one go', () => {
  // Paragraphs that are cut and joined again, and texts that are looked at from each sign on, would take minutes.
  for (const sign of ['\\(a ', '$a ', '$a', '\\[ ', '$$ a\n', '\\[ a\n\n', '\\', '*$a_', '\\[ a\\] b\n']) {
    for (const ended of [false, true]) expect(lex(sign.repeat(20_000), ended).length).toBeGreaterThan(0);
  }
}, 60_000);
