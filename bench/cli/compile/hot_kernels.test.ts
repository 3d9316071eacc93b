import { afterAll, describe, expect, test } from 'vitest';
import { SplitkvError } from '../../../src/base/errors.js';
import { drawn, sweepsAll } from '../../../src/gpu/testing/draw.js';
import { type CompileRow, compileRows, compileVariants } from './compile_suite.js';
import { CompileLab, DEFAULT_FAMILY } from './driver.js';

/** Kernels that a token or its prompt waits for. */
const HOT =
  /^(linear|attention_|mla_|expert_|moe_|rope_append$|rms_norm$|embedding$|causal_conv$|delta_|gated_norm$|output_gate$|argmax_partial$|(merge_)?candidates$|bin_weights$|list_bins$|sample$)/;

/** What is asked of them, and what a kernel that falls short has. */
const RULES = {
  'no spills': ({ spilled }: CompileRow) => spilled === 0,
  'no scratch': ({ scratch }: CompileRow) => scratch === 0,
  'no loop guards': ({ loop_guards: guards }: CompileRow) => guards === 0,
  // Of other kernels some variants have them.
  'no serial scans': ({ kernel, serial_scans: scans }: CompileRow) => scans === 0 || kernel !== 'attention_prefill',
  '8 waves': ({ waves_per_simd: waves }: CompileRow) => waves >= 8,
} as const;
type Rule = keyof typeof RULES;

const FOUR_PLANES = 'numbers and factors of two or three matrices are read from four planes at once';

/** Kernel, or one of its cases -> the rule that it may break -> why. What no variant needs any more must go: the whole sweep says so. */
const EXCEPTIONS: Readonly<Record<string, Partial<Record<Rule, string>>>> = {
  'attention_prefill 4/2 d512 f16': {
    '8 waves': 'the outputs of 512 elements of a row take 204 registers of a thread',
  },
  'delta_rule widest keys': {
    '8 waves': "64 elements of the state and of the key are in a thread's registers",
  },
  'linear iq1_m, swiglu': { '8 waves': FOUR_PLANES },
  'linear_conv iq1_m, 256 channels': { '8 waves': FOUR_PLANES },
  'linear_conv iq1_s, 256 channels': { '8 waves': FOUR_PLANES },
  'expert_linear iq1_m, 2 of 4, gate and up': { '8 waves': FOUR_PLANES },
  expert_linear_tiled: {
    '8 waves': 'two tiles of weights for gate and up leave room in workgroup memory for 4 workgroups of 2 waves',
  },
};

/** Shaders compiled in a run that isn't a sweep. */
const DRAWN = 16;

const lab = await CompileLab.open(DEFAULT_FAMILY, new AbortController().signal).catch((error: unknown) => {
  if (error instanceof SplitkvError && error.code === 'unsupported') return undefined;
  throw error;
});
afterAll(() => lab?.close());

describe.skipIf(lab === undefined)('hot kernels on a GPU', () => {
  test('have registers, waves and loops to be fast', async () => {
    const hot = (await compileVariants({}, lab!.card)).filter(({ kernel }) => HOT.test(kernel));
    const distinct = [...new Map(hot.map((variant) => [variant.code, variant])).values()];
    const rows = await compileRows(lab!, drawn(distinct, DRAWN, 'hot kernels'));
    expect(rows.length).toBeGreaterThanOrEqual(DRAWN);
    const broken = rows.flatMap((row) =>
      (Object.keys(RULES) as Rule[]).filter((rule) => !RULES[rule](row)).map((rule) => ({ rule, row })),
    );
    const nameOf = ({ kernel, case: name }: CompileRow): string =>
      `${kernel} ${name}` in EXCEPTIONS ? `${kernel} ${name}` : kernel;
    const excused = ({ rule, row }: (typeof broken)[number]): boolean => EXCEPTIONS[nameOf(row)]?.[rule] !== undefined;
    expect(broken.filter((each) => !excused(each))).toEqual([]);
    if (!sweepsAll) return;
    const needed = new Set(broken.map(({ rule, row }) => `${nameOf(row)}: ${rule}`));
    const given = Object.entries(EXCEPTIONS).flatMap(([kernel, rules]) =>
      Object.keys(rules).map((rule) => `${kernel}: ${rule}`),
    );
    expect(given.filter((exception) => !needed.has(exception))).toEqual([]);
  });

  test("with precision 'fast' prompts are multiplied by matrix units and by packed bytes", async () => {
    expect(lab!.card.fast.paths).toEqual(['matrix 16x16x16', 'matrix f16 16x16x16', 'dot4', 'f16']);
    const q4 = await compileVariants({ kernel: 'linear_tiled', case: '128 rows, 576 x 1536, q4' }, lab!.card);
    const rows = await compileRows(lab!, q4);
    const products = (suffix: string): readonly boolean[] => {
      const row = rows.find(({ case: name }) => name === `128 rows, 576 x 1536, q4${suffix}`)!;
      return [row.matrix_products > 0, row.byte_products > 0];
    };
    expect(products('')).toEqual([false, false]);
    expect(products(', matrix 16x16x16')).toEqual([true, false]);
    expect(products(', matrix f16 16x16x16')).toEqual([true, false]);
    expect(products(', dot4')).toEqual([false, true]);
    expect(products(', f16')).toEqual([false, false]);
  });

  test('a shader that does not compile is told by its name', async () => {
    const job = {
      name: "kernel 'case'",
      code: '@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }',
      bindings: [],
    };
    await expect(lab!.compile([job])).rejects.toThrow(/^kernel 'case' doesn't compile: .*u32/s);
  });

  test('what the compilers make of a loop that can be proved finite, and of one that can not', async () => {
    const shader = (loop: string): string => `
      struct Params { n: u32 }
      @group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
      @group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
      @group(0) @binding(2) var<uniform> params: Params;
      @compute @workgroup_size(32, 2) fn main(@builtin(local_invocation_index) thread: u32) {
        var sum = vec4<f32>();
        ${loop}
        out[thread] = sum;
      }`;
    const jobs = [
      'for (var left = params.n; left > 0u; left--) { sum += x[64u * left + thread]; }',
      'for (var i = 0u; i < params.n; i++) { sum += x[64u * i + thread]; }',
      '',
    ].map((loop) => ({ name: loop, code: shader(loop), bindings: ['read', 'read_write'] as const }));
    const [finite, guarded, none] = await lab!.compile(jobs);
    expect(finite).toMatchObject({ loops: 1, loop_guards: 0, threads: 64, thread_bytes_in_flight: 16, spilled: 0 });
    expect(guarded).toMatchObject({ loops: 1, loop_guards: 1 });
    expect(none).toMatchObject({ loops: 0, loop_guards: 0, vmem: 1, thread_bytes_in_flight: null, lds_bytes: 0 });
    expect(guarded!.instructions).toBeGreaterThan(finite!.instructions);
  });
});
