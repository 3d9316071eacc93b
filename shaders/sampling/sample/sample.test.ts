import { expect, test } from 'vitest';
import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { suite } from './cases.js';
import { philoxReference } from './reference.js';

await testKernel(suite);

test('the generator is Philox4x32-10: known answers of Random123', () => {
  const hex = (words: number[]): string => words.map((word) => word.toString(16).padStart(8, '0')).join(' ');
  expect(hex(philoxReference([0, 0, 0, 0], [0, 0]))).toBe('6627e8d5 e169c58d bc57ac4c 9b00dbd8');
  const ones = 0xffffffff;
  expect(hex(philoxReference([ones, ones, ones, ones], [ones, ones]))).toBe('408f276d 41c83b0e a20bc7c6 6d5451fd');
});
