import type { PlainPlanOptions } from '../../app/host_protocol.js';
import { usageError } from '../../base/errors.js';
import { HEAD_COSTS } from '../../arrangement/index.js';
import { snakeOf } from '../../base/names.js';
import type { PlanReport } from '../../index.js';
import { type Command, commonOptions, tell, type Terminal } from '../command.js';
import { mixtureText } from '../../model/weights/weight_types.js';
import {
  hubOptions,
  loadValues,
  modelOptions,
  type ModelRequest,
  modelRequest,
  plannedOptions,
  tellingOf,
} from '../model_options.js';
import { defined, only, type Options, type OptionSpecs, readGiven, writableGiven, writeGiven } from '../options.js';

export const command: Command = {
  summary:
    'Predicts what every plan would do with a model on this machine, and names the one that `--plan auto` takes. Adapters are ' +
    'measured with the model’s own kernels, once; its weights are not loaded.',
  words: ['model'],
  examples: [
    'splitkv plan smollm2-360m-instruct --ranks 2',
    'splitkv plan ./my-model --ranks 4 --memory 2GB --out plan.json',
    'splitkv plan ./my-model --tensor 2 --token 2 --batch 32',
    'splitkv plan ./my-model --ranks 4 --kv-budget 0.2 --kv-profile profile.json --kv-policy static',
  ],
  usage: 'plan (MODEL | --config FILE) [--ranks N] [options]',
  options: {
    ...only(modelOptions, 'model', 'host'),
    config: {
      value: 'FILE',
      help: 'in place of MODEL the config.json of one whose weights needn’t be anywhere yet; they are taken to be f16 unless --weights says more',
    },
    ...hubOptions,
    ...plannedOptions,
    ranks: {
      ...modelOptions['ranks'],
      help: 'GPU devices there may be: how many (default 2), or an adapter each, as for generate',
    },
    plan: {
      ...modelOptions['plan'],
      help: 'auto (default): of all plans; a policy: what is predicted of it',
    },
    tensor: {
      ...modelOptions['tensor'],
      help: 'degrees of parallelism: the plan that they name is the pick, on as many ranks as their product. Ranks with different heads and columns (tp)',
    },
    'prompt-tokens': { value: 'N', help: 'the request to plan for; default: half the context, at most 1024' },
    'max-tokens': { value: 'N', help: 'tokens that follow the prompt; default 128' },
    batch: { value: 'N', help: 'sequences decoded side by side; default 1' },
    fresh: { help: 'measure again what was measured before' },
    out: { value: 'FILE', help: 'write the picked plan there, as JSON that `--plan FILE` runs' },
    ...commonOptions,
  } satisfies OptionSpecs,
  async run(options, terminal) {
    const request = await planRequest(options, terminal);
    const { plan, ...loadOptions } = request.options;
    const out = await writableGiven(options, 'out');
    if (plan !== undefined && typeof plan !== 'string') {
      throw usageError('--plan FILE: give a policy; what is in a file is run by --plan FILE of other commands');
    }
    const report = await makeReport(request, {
      ...loadOptions,
      ...defined({
        plan,
        promptTokens: options.integer('prompt-tokens', 1),
        newTokens: options.integer('max-tokens', 1),
        batch: options.integer('batch', 1, 256),
        fresh: options.has('fresh') || undefined,
      }),
    });
    if (options.has('json')) await terminal.write(`${JSON.stringify(planDocument(report), null, 2)}\n`);
    else await tell(terminal, describe(report));
    if (!report.pick) {
      if (options.has('json')) terminal.note(`splitkv: ${report.why}`);
      return 1;
    }
    if (out !== undefined) await writeGiven('out', out, `${JSON.stringify(report.pick.plan, null, 2)}\n`);
    return 0;
  },
};

/** What is planned for: a model by its name, or a lone config.json. */
type PlanRequest = ModelRequest | (Omit<ModelRequest, 'host' | 'model'> & { host: 'node'; model: readonly File[] });

async function planRequest(options: Options, terminal: Terminal): Promise<PlanRequest> {
  const path = options.text('config');
  if (path === undefined) return modelRequest(options, terminal, false);
  if (options.has('model') || options.text('host') === 'chrome')
    throw usageError('--config FILE takes the place of MODEL, and is for --host node');
  const model = [new File([await readGiven('config', path)], 'config.json')];
  const { weights = 'auto', ...load } = await loadValues(options);
  const given = { ...load, weights: weights === 'auto' ? ('f16' as const) : weights };
  return { host: 'node', model, options: given, ...tellingOf(options, terminal) };
}

async function makeReport(request: PlanRequest, options: PlainPlanOptions): Promise<PlanReport> {
  if (request.host === 'chrome') return (await import('../hosts/chrome_host.js')).planInChrome(request, options);
  const { signal, onProgress } = request;
  const { planModel } = await import('../../index.js');
  return planModel(request.model, { ...options, signal, onProgress });
}

function describe(report: PlanReport): string {
  const { name, weightTypes, kv: kvType, contextLength, promptTokens, newTokens, batch, machine } = report;
  const sequences = batch === 1 ? '' : `, ${batch} sequences side by side`;
  return [
    `${name}, weights ${mixtureText(weightTypes)}, cache ${kvType}, context ${contextLength}; a request of ${promptTokens} + ${newTokens} tokens${sequences}`,
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
      memory: candidate.memory.map((rank) => snakeOf(rank, 'weightBytes', 'kvBytes', 'totalBytes')),
    }),
    ...(candidate.refused !== undefined && { refused: candidate.refused }),
  }));
  const { pick } = report;
  return {
    model: report.name,
    context: report.contextLength,
    ...snakeOf(report, 'weights', 'weightTypes', 'kv', 'promptTokens', 'newTokens', 'batch', 'why'),
    adapters: report.machine.ranks.map(({ name }) => name),
    candidates,
    pick: pick ? { policy: pick.policy, ranks: pick.worldSize, plan: pick.plan } : null,
    measured: report.machine,
    ...(report.headCosts && { head_costs: snakeOf(report.headCosts, ...HEAD_COSTS) }),
  };
}
