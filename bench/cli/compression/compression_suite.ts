/**
 * Room: right answers against the KV budget: questions about stories (questions.ts), by policy and budget, and their
 * plot. docs/kv_compression.md has the results.
 */

import type { BenchDocument, Measurement } from '../../document.js';
import { benchAdapter } from '../../document.js';
import type { KvPolicy, Profile } from '../../../src/index.js';
import { COMPRESSION_DEFAULTS } from '../../../src/model/compression/options.js';
import type { PlainLoadOptions } from '../../../src/app/host_protocol.js';
import type { Terminal } from '../../../src/cli/command.js';
import { openHost, type ModelRequest } from '../../../src/cli/model_options.js';
import { measureProfile } from '../../../src/engine/measure/measure_profile.js';
import { storyQuestion } from '../../../src/engine/measure/story.js';
import { readEnvironment } from '../environment.js';

export const BUDGETS = [1, 0.5, 0.25, 0.15, 0.1, 0.05] as const;
export const POLICIES: readonly KvPolicy[] = ['snap', 'ada', 'static'];

/** What 'static' keeps by is measured with Ada-KV at this budget, on stories that no question is about. */
const PROFILE_BUDGET = 0.25;
const PROFILE_SAMPLES = 8;
const MAX_ANSWER = 16;

export interface Question {
  /** Tokens, about. */
  readonly context: number;
  readonly prompt: string;
  /** Ends with a full stop. */
  readonly answer: string;
}

export interface CompressionResult {
  readonly context: number;
  readonly policy: KvPolicy | 'none';
  readonly budget: number;
  readonly window: number;
  readonly kernel: number;
  readonly right: number;
  readonly asked: number;
  /** Of the prompts' blocks, over all questions. */
  readonly bytes_before: number;
  readonly bytes_after: number;
}

export interface CompressionRequest {
  readonly request: ModelRequest;
  readonly questions: readonly Question[];
  /** Window, kernel, alpha. */
  readonly kv: PlainLoadOptions;
}

/** Right answers by policy and budget, at each length that there are questions of. */
export async function runCompressionSuite(
  { request, questions, kv }: CompressionRequest,
  terminal: Terminal,
): Promise<BenchDocument<CompressionResult>> {
  const contexts = [...new Set(questions.map(({ context }) => context))].toSorted((a, b) => a - b);
  const { kvWindow: window = COMPRESSION_DEFAULTS.window, kvKernel: kernel = COMPRESSION_DEFAULTS.poolWidth } = kv;
  const results: CompressionResult[] = [];
  const adapters = [];
  for (const context of contexts) {
    const asked = questions.filter((question) => question.context === context);
    const settings = [
      { policy: 'none', budget: 1 } as const,
      ...BUDGETS.filter((budget) => budget < 1).flatMap((budget) => POLICIES.map((policy) => ({ policy, budget }))),
    ];
    const profile = await profileAt({ request, kv }, context, terminal);
    for (const { policy, budget } of settings) {
      const host = await openHost({
        ...request,
        options: {
          ...request.options,
          ...(policy !== 'none' && { ...kv, kvPolicy: policy, kvBudget: budget }),
          ...(policy === 'static' && { kvProfile: profile }),
        },
      });
      try {
        if (adapters.length === 0) adapters.push(benchAdapter(host.info));
        const counts = { right: 0, bytes_before: 0, bytes_after: 0 };
        for (const [index, { prompt, answer }] of asked.entries()) {
          terminal.progress(`${context} tokens, ${policy} ${budget}: question ${index + 1} of ${asked.length}`);
          const { signal } = terminal;
          const options = { maxTokens: MAX_ANSWER, stop: ' .' };
          const { text, finish_detail: end, stats } = await host.generate({ signal }, prompt, { raw: true }, options);
          if (end === 'stop_string' && `${text} .` === answer) counts.right++;
          counts.bytes_before += stats.kv_compression?.bytes_before ?? 0;
          counts.bytes_after += stats.kv_compression?.bytes_after ?? 0;
        }
        results.push({ context, policy, budget, window, kernel, asked: asked.length, ...counts });
      } finally {
        await host.close();
      }
    }
  }
  return {
    suite: 'compression',
    environment: await readEnvironment(request.host, adapters),
    results,
    measurements: results.map(measurementOf),
  };
}

async function profileAt(
  { request, kv }: Omit<CompressionRequest, 'questions'>,
  context: number,
  terminal: Terminal,
): Promise<Profile> {
  const host = await openHost({
    ...request,
    options: { ...request.options, ...kv, kvPolicy: 'ada', kvBudget: PROFILE_BUDGET },
  });
  try {
    const samples = Array.from({ length: PROFILE_SAMPLES }, (_, i) => storyQuestion(context, 1 + i));
    const { info, kept } = host;
    const measured = { info, kept: (sample: string | readonly number[]) => kept({ signal: terminal.signal }, sample) };
    return await measureProfile(measured, samples, { onProgress: (line) => terminal.progress(line) });
  } finally {
    await host.close();
  }
}

const measurementOf = ({ context, policy, budget, window, kernel, right, asked }: CompressionResult): Measurement => ({
  metric: `right answers at ${context} tokens`,
  unit: '%',
  better: 'higher',
  setting: { 'budget (%)': 100 * budget, policy, window: `${window}`, kernel: `${kernel}` },
  samples: [(100 * right) / asked],
});

/** Rows of budgets, columns of policies. */
export function compressionTable(results: readonly CompressionResult[]): string {
  const contexts = [...new Set(results.map(({ context }) => context))];
  const columns = contexts.flatMap((context) => POLICIES.map((policy) => ({ context, policy })));
  const heading = ['budget', ...columns.map(({ context, policy }) => `${policy}, ${context}`)];
  const rows = BUDGETS.map((budget) => [
    `${100 * budget}%`,
    ...columns.map(({ context, policy }) => {
      const found = results.find(
        (result) =>
          result.context === context &&
          result.budget === budget &&
          (result.policy === policy || result.policy === 'none'),
      );
      return found ? `${found.right}/${found.asked}` : '-';
    }),
  ]);
  return [heading, ...rows].map((cells) => cells.map((cell) => cell.padStart(14)).join('')).join('\n') + '\n';
}
