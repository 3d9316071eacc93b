import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { calledOnly } from './shader_module.js';

const CODE = `const a = 1;
fn used(x: u32) -> u32 {
  if (x > a) {
    return 1; // fn no(
  }
  return 0;
}
fn alone() -> u32 { return used(2); }
fn also_alone() {
  alone();
}
@compute
@workgroup_size(64)
fn main() {
  out[0] = used(3);
}
`;
const unindented = (code: string): string =>
  code
    .split('\n')
    .map((line) => line.replace(/\/\/.*$/, '').trim())
    .filter((line) => line !== '')
    .join('\n');

test('functions that nothing calls are left out, also of what only those call', () => {
  const called = calledOnly(CODE);
  expect([...called.matchAll(/fn (\w+)/g)].map(([, name]) => name)).toEqual(['used', 'main']);
  expect(unindented(called)).toBe(unindented(CODE.replace(/fn alone[^]*?\n}\n/, '')));
});

test('published WGSL, which is not indented, comes to the same', () => {
  const files = readdirSync('shaders', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.wgsl'));
  expect(files.length).toBeGreaterThan(50);
  for (const code of [CODE, ...files.map((file) => readFileSync(`shaders/${file}`, 'utf8'))]) {
    expect(unindented(calledOnly(unindented(code)))).toBe(unindented(calledOnly(code)));
  }
});
