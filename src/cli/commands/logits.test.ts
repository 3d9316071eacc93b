import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { type LogitsDescription, LogitsDescriber, type LogitsOutput } from './logits.js';

const rows = [Float32Array.of(1, 3, 3, -2), Float32Array.of(-1, -5, -0.5, -1)];

function describeRows(output: LogitsOutput): LogitsDescription {
  const describer = new LogitsDescriber(output, 3);
  for (const [position, row] of rows.entries()) describer.add(position, row);
  return describer.describe();
}

test('digest and argmax are the same for every output; only full keeps the rows', () => {
  const sha256 = createHash('sha256')
    .update(Buffer.concat(rows.map((row) => Buffer.from(row.buffer))))
    .digest('hex');
  const common = { positions: [0, 1], argmax: [1, 2], best: [3, -0.5], sha256 };
  expect(describeRows('argmax')).toEqual(common);
  expect(describeRows('full')).toEqual({ ...common, rows });
  expect(describeRows('top')).toEqual({
    ...common,
    top: [
      [
        [1, 3],
        [2, 3],
        [0, 1],
      ], // of equals the lowest id first
      [
        [2, -0.5],
        [0, -1],
        [3, -1],
      ],
    ],
  });
});

test('a logit that is no number is refused with its place', () => {
  const describer = new LogitsDescriber('argmax', 1);
  expect(() => describer.add(7, Float32Array.of(0, NaN))).toThrow('logit 1 of position 7 is NaN');
});
