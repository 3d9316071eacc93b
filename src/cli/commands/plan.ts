import { writeFile } from 'node:fs/promises';
import type { PlainPlanOptions } from '../../app/host_protocol.js';
import { SplitkvError } from '../../base/errors.js';
import type { PlanReport } from '../../index.js';
import { type Command, commonOptions } from '../command.js';
import { defined, modelOptions, type ModelRequest, modelRequest } from '../model_options.js';
import type { OptionSpecs } from '../options.js';

const { model, hub, token, weights, kv, context, host, adapter, ranks, memory } = modelOptions;

export const command: Command = {
  summary:
    'Predicts what every plan would do with a model on this machine, and names the one that `--plan auto` takes. Adapters are ' +
    'measured with the model’s own kernels, once; its weights are not loaded.',
  usage: 'plan --model MODEL [--ranks N] [options]',
  options: {
    model,
    hub,
    token,
    ranks: { ...ranks, help: 'GPU devices there may be: how many (default 2), or an adapter each, as for generate' },
    weights,
    kv,
    context,
    'prefill-chunk': modelOptions['prefill-chunk'],
    memory,
    'prompt-tokens': { value: 'N', help: 'the request to plan for; default: half the context, at most 1024' },
    'max-tokens': { value: 'N', help: 'tokens that follow the prompt; default 128' },
    batch: { value: 'N', help: 'sequences decoded side by side; default 1' },
    host,
    adapter,
    'virtual-ranks': modelOptions['virtual-ranks'],
    fresh: { help: 'measure again what was measured before' },
    out: { value: 'FILE', help: 'write the picked plan there, as JSON that `--plan FILE` runs' },
    ...commonOptions,
  } satisfies OptionSpecs,
  async run(options, terminal) {
    const request = await modelRequest(options, terminal, false);
    const { plan: _, stepsInFlight: __, ...loadOptions } = request.options;
    const report = await makeReport(request, {
      ...loadOptions,
      ...defined({
        promptTokens: options.integer('prompt-tokens', 1),
        newTokens: options.integer('max-tokens', 1),
        batch: options.integer('batch', 1, 256),
        fresh: options.has('fresh') || undefined,
      }),
    });
    if (options.has('json')) await terminal.write(`${JSON.stringify(planDocument(report), null, 2)}\n`);
    else await terminal.write(describe(report));
    if (!report.pick) {
      if (options.has('json')) terminal.note(`splitkv: ${report.why}`);
      return 1;
    }
    const out = options.text('out');
    if (out !== undefined) await writePlan(out, report.pick.plan);
    return 0;
  },
};

async function makeReport(request: ModelRequest, options: PlainPlanOptions): Promise<PlanReport> {
  if (request.host === 'chrome') return (await import('../hosts/chrome_host.js')).planInChrome(request, options);
  const { signal, onProgress } = request;
  const { planModel } = await import('../../index.js');
  return planModel(request.model, { ...options, signal, onProgress });
}

async function writePlan(path: string, plan: object): Promise<void> {
  try {
    await writeFile(path, `${JSON.stringify(plan, null, 2)}\n`);
  } catch (error) {
    throw new SplitkvError('io', `--out ${path}: can't be written: ${(error as Error).message}`, { cause: error });
  }
}

function describe(report: PlanReport): string {
  const { name, weights: type, kv: kvType, contextLength, promptTokens, newTokens, batch, machine } = report;
  const sequences = batch === 1 ? '' : `, ${batch} sequences side by side`;
  return [
    `${name}, weights ${type}, cache ${kvType}, context ${contextLength}; a request of ${promptTokens} + ${newTokens} tokens${sequences}`,
    ...machine.ranks.map((rank, i) => `rank ${i}: ${rank.name}`),
    '',
    report.table,
    '',
    report.pick ? `pick: ${report.why}` : report.why,
    '',
  ].join('\n');
}

/** Names are stable: other tools read them. */
function planDocument(report: PlanReport): object {
  const candidates = report.candidates.map((candidate) => ({
    policy: candidate.policy,
    ranks: candidate.worldSize,
    ...(candidate.plan && {
      tokens_per_second: candidate.tokensPerSecond,
      ttft_ms: candidate.firstTokenSeconds * 1000,
      request_ms: candidate.requestSeconds * 1000,
      exchanges_per_token: candidate.decode.exchanges,
      exchange_ms_per_token: candidate.decode.exchangeSeconds * 1000,
      memory: candidate.memory.map(({ weightBytes, kvBytes, totalBytes }) => ({
        weight_bytes: weightBytes,
        kv_bytes: kvBytes,
        total_bytes: totalBytes,
      })),
    }),
    ...(candidate.refused !== undefined && { refused: candidate.refused }),
  }));
  const { pick } = report;
  return {
    model: report.name,
    weights: report.weights,
    kv: report.kv,
    context: report.contextLength,
    prompt_tokens: report.promptTokens,
    new_tokens: report.newTokens,
    batch: report.batch,
    adapters: report.machine.ranks.map(({ name }) => name),
    candidates,
    pick: pick ? { policy: pick.policy, ranks: pick.worldSize, plan: pick.plan } : null,
    why: report.why,
    measured: report.machine,
  };
}
