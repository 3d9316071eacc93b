import { describe, expect, test } from 'vitest';
import { alignUp } from '../../../src/base/math.js';
import { Random } from '../../../src/base/random.js';
import { describeOnAdapters } from '../../../src/gpu/testing/adapters.js';
import { drawn } from '../../../src/gpu/testing/draw.js';
import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { rowsProblem } from '../linear/cases.js';
import { linear } from '../linear/index.js';
import { tiledProblem } from '../linear_tiled/cases.js';
import { linearTiled } from '../linear_tiled/index.js';
import { packTiles } from '../pack.js';
import { runOnce } from '../testing/run.js';
import { segmentRange, weightColumns } from '../segments.js';
import { suite } from './cases.js';
import { reduceSegments } from './index.js';

await testKernel(suite);

const N = 33;
const OUT_STRIDE = 64;

/** Splits that no rank may change a bit of; at 24 columns a segment, ranks start within quantisation blocks. */
const SPLITS = [
  { name: '8 segments of 24', k: 192, total: 8, align: 8, ranks: [1, 2, 4, 8] },
  { name: '4 segments', k: 256, total: 4, align: 8, ranks: [1, 2, 4] },
  { name: '8 uneven segments, some empty', k: 100, total: 8, align: 32, ranks: [1, 2, 4, 8] },
];

await describeOnAdapters('segments of ranks, reduced', (device) => {
  describe.each([true, false])('decided for a software adapter: %s', (software) => {
    test.each(drawn(SPLITS, 1, `reduced ${device().name} ${software}`))(
      'have the bits of one rank: $name',
      async ({ k, total, align, ranks }) => {
        const random = new Random(9);
        const layers = [
          [linear, 1, 'q4'],
          [linearTiled, 3, 'q4'],
          [linear, 2, 'f16'],
          [linearTiled, 5, 'q8'],
        ] as const;
        // The hardware variants take software adapters long to compile.
        for (const [kernel, rows, type] of software ? layers : layers.slice(0, 2)) {
          const x = random.normals(rows * k);
          const w = random.normals(N * k);
          const bias = random.normals(N);
          const residual = random.normals(rows * OUT_STRIDE);

          /** All of it, or a rank's segments: each by itself, or added up. */
          const run = (first: number, count: number, what: 'whole' | 'segments' | 'sum'): Promise<Uint32Array> => {
            const whole = what === 'whole';
            const segments = { total, align, first, count };
            const { start, end } = segmentRange(k, segments);
            const columns = weightColumns(k, segments);
            const width = columns.end - columns.start;
            const xStride = alignUp(Math.max(end - start, 1), 32);
            const slice = new Float32Array(rows * xStride);
            for (let r = 0; r < rows; r++) slice.set(x.subarray(r * k + start, r * k + end), r * xStride);
            const packed = packTiles(type, w.subarray(columns.start), N, width, k);
            const rest = {
              type,
              segments,
              modelInFeatures: k,
              xStride,
              outStride: OUT_STRIDE,
              bias: whole,
              epilogue: whole ? 'residual' : 'none',
              output: whole ? 'sum' : what,
            } as const;
            const inputs = {
              x: slice,
              weight: packed.weight,
              ...(packed.scale ? { scale: packed.scale } : {}),
              ...(whole ? { bias, out: residual } : {}),
            };
            const length = (what === 'segments' ? count : 1) * rows * OUT_STRIDE;
            return kernel === linear
              ? runOnce(device(), linear, rowsProblem(rows, end - start, N, rest), inputs, length, software)
              : runOnce(device(), linearTiled, tiledProblem(rows, end - start, N, rest), inputs, length, software);
          };

          const expected = await run(0, total, 'whole');
          for (const world of ranks) {
            const count = total / world;
            for (const what of ['segments', 'sum'] as const) {
              const parts = what === 'segments' ? total : world;
              const segments = new Uint32Array(parts * rows * OUT_STRIDE);
              for (let rank = 0; rank < world; rank++) {
                const { start, end } = segmentRange(k, { total, align, first: rank * count, count });
                // A rank whose segments are all empty has nothing to run: its sums are zero.
                const at = (rank * parts * rows * OUT_STRIDE) / world;
                if (start < end) segments.set(await run(rank * count, count, what), at);
              }
              const problem = {
                rows,
                segmentCount: total,
                begins: Array.from({ length: parts }, (_, part) => (part * total) / parts),
                outFeatures: N,
                inStride: OUT_STRIDE,
                outStride: OUT_STRIDE,
                bias: true,
                epilogue: 'residual',
              } as const;
              const given = { segments, bias, out: residual };
              const reduced = await runOnce(device(), reduceSegments, problem, given, rows * OUT_STRIDE, software);
              expect(reduced, `${kernel.name} ${type}, ${what} of ${world} ranks`).toEqual(expected);
            }
          }
        }
      },
    );
  });
});
