import { expect, test } from 'vitest';
import { drawn } from '../../../gpu/testing/draw.js';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import { modelWork } from '../../../model/model_sizes.js';
import { modelShape } from '../../../model/shape.js';
import { randomArrangement } from '../../../placement/testing/arrangements.js';
import {
  arrangedPlan,
  generatedRows,
  layerExchanges,
  makePlan,
  mlpKind,
  promptRows,
  stageSteps,
  stepExchanges,
} from '../../../placement/index.js';
import { type RankTrace, traceRoutes } from './route_trace.js';
import { randomFiles } from '../random_source.js';

const { name: adapter } = (await testAdapters()).at(-1)!;
const models = {
  llama: { model_type: 'llama', num_key_value_heads: 4, num_attention_heads: 4, intermediate_size: 256 },
  deepseek_v3: { model_type: 'deepseek_v3', num_attention_heads: 8 },
  olmo2: { model_type: 'olmo2', num_key_value_heads: 4, num_attention_heads: 4, intermediate_size: 256 },
  qwen3: { model_type: 'qwen3', num_key_value_heads: 2, num_attention_heads: 4, intermediate_size: 256 },
  gpt_oss: { model_type: 'gpt_oss', num_key_value_heads: 4, num_attention_heads: 8, num_local_experts: 4 },
};

/** Bytes by "label, sender to receiver". */
type Totals = Map<string, number>;

function add(totals: Totals, label: string, from: number, to: number, bytes: number): void {
  const name = `${label}, ${from} to ${to}`;
  totals.set(name, (totals.get(name) ?? 0) + bytes);
}

/** What ranks received, added up over a step. */
function recorded(trace: readonly RankTrace[]): Totals {
  const totals: Totals = new Map();
  for (const [to, lines] of trace.entries()) {
    for (const line of lines) {
      const [, label, messages] = /^(.*): to \[.*\] from \[(.*)\]$/.exec(line)!;
      for (const message of messages === '' ? [] : messages!.split(', ')) {
        const [from, bytes] = message.split(': ').map(Number);
        add(totals, label!, from!, to, bytes!);
      }
    }
  }
  return totals;
}

const cases = [
  ['llama', 'sp', 3],
  ['llama', 'tp', 2],
  ['llama', 'tp', 8],
  ['llama', 'sp', 2],
  ['llama', 'tp+sp', 2],
  ['llama', 'tp+sp', 4],
  ['llama', 'pp', 2],
  ['llama', 'token', 3],
  ['llama', 'tp x token', 4],
  ['llama', 'token x sp', 3],
  ['llama', 'token x sp', 4],
  ['llama', 'adp', 2],
  ['llama', 'adp x tp', 4],
  ['llama', 'adp x tp+sp', 4],
  ['llama', 'pp x adp', 4],
  ['llama', 'arranged', 3],
  ['olmo2', 'tp', 2],
  ['olmo2', 'tp', 8],
  ['olmo2', 'tp+sp', 4],
  ['olmo2', 'sp', 2],
  ['olmo2', 'adp x tp', 4],
  ['qwen3', 'tp', 3],
  ['qwen3', 'adp x tp', 8],
  ['olmo2', 'arranged', 3],
  ['gpt_oss', 'arranged', 3],
  ['gpt_oss', 'token', 3],
  ['gpt_oss', 'tp', 2],
  ['gpt_oss', 'tp', 6],
  ['gpt_oss', 'tp+sp', 4],
  ['gpt_oss', 'tp x token', 4],
  ['gpt_oss', 'ep', 2],
  ['deepseek_v3', 'tp', 2],
  ['deepseek_v3', 'sp', 2],
  ['deepseek_v3', 'ep', 2],
  ['deepseek_v3', 'pp', 2],
  ['deepseek_v3', 'adp', 2],
  ['deepseek_v3', 'adp x tp', 4],
  ['deepseek_v3', 'token', 3],
  ['deepseek_v3', 'tp x token', 5],
  ['deepseek_v3', 'tp x token x sp', 4],
  ['deepseek_v3', 'pp x tp x token', 6],
] as const;
test.each(drawn(cases, 1, 'predicted exchanges'))(
  'the planner knows who sends how much to whom: %s, %s on %i',
  async (model, policy, ranks) => {
    const options = { config: models[model] };
    const { config } = randomFiles(options).model;
    const shape = modelShape(config);
    const plan =
      policy === 'arranged'
        ? arrangedPlan(randomArrangement(shape, ranks, { seed: 3 }), shape, 'lanes')
        : makePlan(policy, ranks, shape);
    const work = modelWork(config, 'f32', 'f32');
    const given = { adapter, model: options, plan, virtual: true };
    const predicted = (step: ReturnType<typeof generatedRows>, samples: number): Totals => {
      const totals: Totals = new Map();
      const stages = stageSteps(plan, step);
      const exchanges = stages.flatMap((stage) => {
        const layers = work.sizes.layers.slice(...stage.stage.layers);
        return layers.flatMap((layer) => layerExchanges(stage, work, mlpKind(layer)));
      });
      for (const { label, messages } of [...stepExchanges(stages, work, samples).flat(), ...exchanges]) {
        const name = label === 'tokens' ? 'next tokens' : label;
        for (const { from, to, bytes } of messages) add(totals, name, from, to, bytes);
      }
      return totals;
    };
    // Sequences of unequal length: what counts is how many chunks the longest has.
    const { decode } = await traceRoutes(given, [300, 40, 9]);
    expect(recorded(decode)).toEqual(predicted(generatedRows(3, 303), 3));
    // Whole chunks, one for each replica that splits the rows.
    const { prompt } = await traceRoutes(given, [512]);
    const totals = recorded(prompt);
    for (const name of totals.keys()) if (name.startsWith('last row')) totals.delete(name);
    expect(totals).toEqual(predicted(promptRows(0, 512), 0));
  },
);
