import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { arrangedPlan } from '../make/arranged_plan.js';
import { makePlan } from '../make/make_plan.js';
import { parsePolicy, POLICIES } from '../make/policy.js';
import type { ModelShape, Plan } from '../plan.js';
import { randomArrangement } from '../testing/arrangements.js';
import { anyShape, gqaShape, mlaShape } from '../testing/shapes.js';
import {
  EXPORT_TARGETS,
  type ExportOptions,
  type ExportTarget,
  exportPlan,
  exportScript,
  planDegrees,
} from './export_plan.js';

const gqa = gqaShape(4, { group: 4, numLayers: 6 });
const moe = gqaShape(4, { group: 4, numLayers: 6, numExperts: 8 });
const mla = mlaShape(16, { numLayers: 6, numExperts: 8 });

/** The flags behind the model's name, or of TensorRT-LLM the file. */
const flags = (target: ExportTarget, plan: Plan, shape: ModelShape, options: ExportOptions = {}): string => {
  const { command, environment, config } = exportPlan(plan, shape, target, { model: 'M', ...options });
  const variables = Object.entries(environment).map(([name, value]) => `${name}=${value} `);
  return (
    variables.join('') +
    (config?.text.trim().replaceAll('\n', '; ') ?? command.slice(command.indexOf('M') + 1).join(' '))
  );
};
const of = (policy: string, ranks: number, shape: ModelShape): readonly string[] => {
  const plan = makePlan(policy, ranks, shape);
  return EXPORT_TARGETS.map((target) => flags(target, plan, shape));
};
const said = (policy: string, ranks: number, shape: ModelShape, target: ExportTarget): string =>
  exportPlan(makePlan(policy, ranks, shape), shape, target).differences.join('\n');

describe('flags', () => {
  test('one rank needs none', () => {
    expect(of('single', 1, gqa)).toEqual(['', '', '']);
    for (const target of EXPORT_TARGETS) {
      expect(exportPlan(makePlan('single', 1, gqa), gqa, target)).toMatchObject({ devices: 1, differences: [] });
    }
  });

  test('heads, layers, and both', () => {
    expect(of('tp', 4, gqa)).toEqual(['--tensor-parallel-size 4', 'tensor_parallel_size: 4', '--tp-size 4']);
    const stages = makePlan('pp', 2, gqa, { layerCosts: [1, 1, 1, 1, 1, 1] });
    expect(EXPORT_TARGETS.map((target) => flags(target, stages, gqa))).toEqual([
      '--pipeline-parallel-size 2',
      'pipeline_parallel_size: 2',
      '--pp-size 2',
    ]);
    expect(said('tp', 4, gqa, 'vllm')).toBe('');
    const both = makePlan('pp x tp', 4, gqa, { layerCosts: [1, 1, 1, 1, 1, 3] });
    expect(EXPORT_TARGETS.map((target) => flags(target, both, gqa))).toEqual([
      'VLLM_PP_LAYER_PARTITION=4,2 --tensor-parallel-size 2 --pipeline-parallel-size 2',
      'tensor_parallel_size: 2; pipeline_parallel_size: 2; pp_partition: [4, 2]',
      'SGLANG_PP_LAYER_PARTITION=4,2 --tp-size 2 --pp-size 2',
    ]);
    expect(exportPlan(both, gqa, 'sglang').devices).toBe(4);
  });

  test('attention data parallelism, its waits, and experts', () => {
    const waits = 'attention_dp_config:;   enable_balance: true;   timeout_iters: 50;   batching_wait_iters: 10';
    expect(of('adp', 4, mla)).toEqual([
      '--data-parallel-size 4 --enable-expert-parallel',
      `tensor_parallel_size: 4; moe_expert_parallel_size: 4; enable_attention_dp: true; ${waits}`,
      '--tp-size 4 --dp-size 4 --enable-dp-attention --enable-dp-lm-head --ep-size 4 --enable-prefill-delayer ' +
        '--prefill-delayer-max-delay-passes 50',
    ]);
    const plan = makePlan('adp', 4, mla);
    const options = {
      sequences: 64,
      contextLength: 4096,
      attentionDpConfig: { enable_balance: false, timeout_iters: 7 },
    };
    expect(flags('vllm', plan, mla, options)).toContain('--max-model-len 4096 --max-num-seqs 16');
    expect(flags('sglang', plan, mla, options)).toMatch(/--ep-size 4 --context-length 4096 --max-running-requests 64$/);
    expect(flags('trtllm', plan, mla, options)).toMatch(
      /enable_balance: false;   timeout_iters: 7;   batching_wait_iters: 10; max_seq_len: 4096; max_batch_size: 16$/,
    );
    expect(said('adp', 4, gqa, 'vllm')).toMatch(/keeps dense MLPs whole.*\n.*attention_dp_config.* no equivalent/);
    expect(said('adp', 4, mla, 'trtllm')).toBe('');
  });

  test('a latent split along the sequence', () => {
    expect(of('tp+sp', 4, mla)).toEqual([
      '--tensor-parallel-size 4 --decode-context-parallel-size 4 --enable-expert-parallel',
      'context_parallel_size: 4; cp_config:;   cp_type: HELIX;   tokens_per_block: 32; kv_cache_config:;   tokens_per_block: 32; ' +
        'moe_expert_parallel_size: 4',
      '--tp-size 4 --dcp-size 4 --ep-size 4',
    ]);
    for (const target of EXPORT_TARGETS) expect(said('tp+sp', 4, mla, target)).toMatch(/256/);
    expect(said('tp+sp', 4, mla, 'trtllm')).toContain('disaggregated');
    expect(said('ep', 2, mla, 'vllm')).toContain('Every rank of the plan holds all attention weights');
  });

  test('kv heads whose cache is split: vLLM only, and only over copies of a kv head', () => {
    expect(of('sp', 8, gqa)).toEqual([
      '--tensor-parallel-size 8 --decode-context-parallel-size 2',
      'tensor_parallel_size: 8',
      '--tp-size 8',
    ]);
    expect(said('sp', 8, gqa, 'vllm')).toMatch(/over 8 ranks; vLLM splits it over 2/);
    expect(said('sp', 2, gqa, 'sglang')).toMatch(/with a latent \(MLA\) only/);
    expect(said('sp', 2, gqa, 'trtllm')).toMatch(/with a latent \(MLA\) only/);
    expect(flags('vllm', makePlan('tp+sp', 8, gqa, { tensor: 4 }), gqa)).toBe(
      '--tensor-parallel-size 8 --decode-context-parallel-size 2',
    );
  });

  test('ranks without weights, and heads that lie anywhere, have no equivalent', () => {
    expect(of('token', 3, moe)[0]).toBe('--tensor-parallel-size 2');
    expect(said('token', 3, gqa, 'vllm')).toMatch(
      /^2 ranks of 3 keep caches and no weights: that has no equivalent.*\n16 query heads can't be cut evenly over 3 GPUs: 2 are used\.$/,
    );
    expect(said('tp x token', 4, gqa, 'sglang')).toMatch(/^2 ranks of 4 keep caches/);
    const plan = arrangedPlan(randomArrangement(gqa, 2, { seed: 3, copies: 2 }), gqa, 'sequences');
    const copied = plan.stages.flatMap(({ layers: [first, end], shares }) =>
      Array.from(
        { length: end - first },
        () => new Set(shares.flatMap(({ copies = [] }) => copies.map(({ head }) => head))).size,
      ),
    );
    const total = copied.reduce((a, b) => a + b, 0);
    expect(total).toBeGreaterThan(1);
    for (const target of EXPORT_TARGETS) {
      const { differences, devices } = exportPlan(plan, gqa, target);
      expect(devices).toBe(2);
      expect(differences).toEqual([
        `kv heads lie where the plan puts them, ${total} copied heads among them: that has no equivalent. ` +
          'Here each GPU has an even run of neighbours.',
      ]);
    }
  });

  test('groups that share heads, each with sequences of its own', () => {
    const flagsOf = (shape: ModelShape): readonly string[] =>
      (['vllm', 'sglang'] as const).map((target) =>
        flags(target, makePlan('adp x tp', 4, shape), shape, { attentionDpConfig: { enable_balance: false } }),
      );
    expect(flagsOf(gqa)).toEqual([
      '--tensor-parallel-size 2 --data-parallel-size 2',
      '--tp-size 4 --dp-size 2 --enable-dp-attention --enable-dp-lm-head',
    ]);
    expect(flagsOf(mla)).toEqual([
      '--tensor-parallel-size 2 --data-parallel-size 2 --decode-context-parallel-size 2 --enable-expert-parallel',
      '--tp-size 4 --dp-size 2 --enable-dp-attention --enable-dp-lm-head --dcp-size 2 --ep-size 4',
    ]);
    expect(said('adp x tp', 4, gqa, 'trtllm')).toBe(
      '2 groups of 2 GPUs that share heads have no equivalent: with enable_attention_dp every GPU holds all heads of whole sequences.',
    );
    expect(said('adp x sp', 4, gqa, 'sglang')).toMatch(
      /^Every rank of the plan holds all attention weights; .*\n.*latent/,
    );
    // No name is read.
    const named = { ...makePlan('adp x tp', 4, mla), policy: 'mine' };
    expect(planDegrees(named)).toMatchObject({ tensor: 2, data: 2, sequence: 2, ranks: 4, spreadsExperts: true });
  });
});

describe('every plan that can be made', () => {
  test('has flags for as many GPUs as it has ranks, where its heads can be cut evenly', () => {
    let plans = 0;
    fc.assert(
      fc.property(anyShape, fc.constantFrom(...POLICIES), fc.integer({ min: 1, max: 8 }), (shape, policy, ranks) => {
        let plan: Plan;
        try {
          plan = makePlan(policy, ranks, shape);
        } catch {
          return;
        }
        plans++;
        const degrees = planDegrees(plan);
        const { features, pipeline } = parsePolicy(policy);
        expect(degrees.pipeline > 1).toBe(pipeline && ranks > 1);
        expect(degrees.kvOnly > 0).toBe(features.includes('token') && ranks > degrees.pipeline);
        expect(degrees.data > 1).toBe(plan.stages.some(({ kind }) => kind === 'adp'));
        const heads = shape.segmentHeads.reduce((a, b) => a + b, 0);
        const even = heads % (degrees.ranks / degrees.data) === 0;
        for (const target of EXPORT_TARGETS) {
          const { devices, command, differences } = exportPlan(plan, shape, target);
          if (even) expect(devices).toBe(ranks);
          else expect(devices).toBeLessThan(ranks);
          expect(differences.some((line) => line.includes("can't be cut evenly"))).toBe(!even);
          expect(command.every((word) => !/undefined|NaN|Infinity/.test(word))).toBe(true);
        }
      }),
      { numRuns: 200 },
    );
    expect(plans).toBeGreaterThan(30);
  });
});

describe('what is refused', () => {
  const plan = makePlan('tp', 2, gqa);
  test.each([
    ['vlm', /export "vlm": use vllm, trtllm, sglang\. Did you mean 'vllm'\?/],
    ['constructor', /export "constructor": use vllm, trtllm, sglang/],
    ['__proto__', /use vllm, trtllm, sglang/],
    ['', /use vllm/],
    [7, /export 7: use vllm/],
    [undefined, /use vllm/],
    [['vllm'], /use vllm/],
  ])('target %j', (target, message) => {
    const run = () => exportPlan(plan, gqa, target as ExportTarget);
    expect(run).toThrow(SplitkvError);
    expect(run).toThrow(message);
  });

  test.each([
    [{ model: '' }, /model "": expected a name/],
    [{ model: '--trust-remote-code' }, /expected a name/],
    [{ model: 3 }, /model 3: expected a name/],
    [{ sequences: 0 }, /sequences 0: expected an integer of at least 1/],
    [{ contextLength: 1.5 }, /contextLength 1.5/],
    [{ attentionDpConfig: { timeout_iter: 3 } }, /unknown option 'timeout_iter'\. Did you mean 'timeout_iters'/],
    [{ attentionDpConfig: { enable_balance: 'yes' } }, /enable_balance "yes"/],
    [{ tokens: 1 }, /unknown option 'tokens'/],
  ])('options %j', (options, message) => {
    expect(() => exportPlan(plan, gqa, 'vllm', options as ExportOptions)).toThrow(message);
  });

  test('a plan of another model', () => {
    expect(() => exportPlan(plan, gqaShape(4, { numLayers: 2 }), 'vllm')).toThrow(/this model has 2/);
  });
});

test('as lines for a shell, which runs nothing that names say', () => {
  const plan = makePlan('adp', 2, mla);
  const model = "it's $(touch gone) `x`";
  const script = exportScript(exportPlan({ ...plan, policy: 'adp\nrm -rf x' }, mla, 'trtllm', { model }));
  expect(script).not.toContain('rm -rf');
  // As a shell reads it: the program is replaced by one that prints its arguments.
  const cwd = mkdtempSync(join(tmpdir(), 'splitkv-export-'));
  try {
    const printing = script.replace(/^trtllm-serve/m, String.raw`printf '%s\n'`);
    expect(execFileSync('sh', ['-c', printing], { encoding: 'utf8', cwd })).toBe(`${model}\n--config\ntrtllm.yaml\n`);
    expect(readdirSync(cwd)).toEqual(['trtllm.yaml']);
    expect(readFileSync(join(cwd, 'trtllm.yaml'), 'utf8')).toContain(
      'enable_attention_dp: true\nattention_dp_config:\n  enable',
    );
  } finally {
    rmSync(cwd, { recursive: true });
  }
  expect(exportScript(exportPlan(makePlan('pp', 2, gqa, { layerCosts: [1, 1, 1, 1, 1, 9] }), gqa, 'vllm'))).toBe(
    '# 2 GPUs\nVLLM_PP_LAYER_PARTITION=5,1 vllm serve MODEL \\\n  --pipeline-parallel-size 2\n',
  );
});
