import { expect, test } from 'vitest';
import { sideBySide, slowdownAt } from './step_time.js';

test('between numbers of ranks, and beyond those measured', () => {
  expect(slowdownAt([1, 1.5, 3], 1)).toBe(1);
  expect(slowdownAt([1, 1.5, 3], 2.5)).toBeCloseTo(2.25, 12);
  expect(slowdownAt([1, 1.5, 3], 7)).toBe(3);
  expect(slowdownAt([1, 1.5, 3], 0.4)).toBe(1);
});

test('ranks slow each other down as long as they work side by side', () => {
  expect(sideBySide([], [1])).toBe(0);
  expect(sideBySide([4], [1, 2])).toBe(4);
  expect(sideBySide([4, 4], [1, 2])).toBe(8);
  expect(sideBySide([4, 4], [1, 1])).toBe(4);
  // One second of each takes two; then three of the second alone.
  expect(sideBySide([4, 1], [1, 2])).toBe(2 + 3);
  expect(sideBySide([0, 4], [1, 2])).toBe(4);
  expect(sideBySide([1, 2, 3], [1, 2, 3])).toBe(3 + 2 + 1);
  // Another stage beside them, as busy.
  expect(sideBySide([2], [1, 1.5], 2)).toBe(3);
});
