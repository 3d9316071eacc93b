import { alignedTable } from '../../base/aligned_table.js';
import { usageError } from '../../base/errors.js';
import { type MeasuredProfile, measureProfile } from '../../engine/measure/measure_profile.js';
import { storyQuestion } from '../../engine/measure/story.js';
import { type Command, say } from '../command.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { without, writableGiven, writeGiven } from '../options.js';
import { readPrompts } from '../prompt_files.js';

const DEFAULT_SAMPLES = 32;
const DEFAULT_TOKENS = 1024;

export const command: Command = {
  summary:
    'Measures what each kv head keeps of sample prompts when their KV cache is compressed: the load that `splitkv arrange` arranges by, and ' +
    'that --kv-policy static keeps by.',
  words: ['model'],
  usage: 'profile MODEL --kv-budget B [options]',
  options: {
    'kv-budget': {
      ...modelOptions['kv-budget'],
      help: 'part of a prompt that is kept, above 0 and below 1, such as 0.2',
    },
    policy: { value: 'POLICY', help: 'ada (default) or snap, which keeps as much of every head' },
    samples: { value: 'N', help: `how many samples; default ${DEFAULT_SAMPLES}, of --prompts all` },
    prompts: {
      value: 'FILE',
      help: 'samples from a JSON list or JSON lines: texts, lists of token ids, or objects with a prompt; default: short stories made by rule',
    },
    'prompt-tokens': {
      value: 'T',
      help: `words of each story; default ${DEFAULT_TOKENS}, less in a smaller --context`,
    },
    seed: { value: 'S', help: 'of the stories; default 0' },
    out: { value: 'FILE', help: 'write the profile there, as JSON' },
    ...without(modelOptions, 'kv-profile', 'kv-budget', 'kv-policy'),
  },
  async run(options, terminal) {
    const request = await modelRequest(options, terminal);
    const budget = request.options.kvBudget;
    if (budget === undefined) {
      throw usageError('--kv-budget is missing: give the part of a prompt that is kept, such as 0.2');
    }
    const policy = options.oneOf('policy', ['ada', 'snap']) ?? 'ada';
    const count = options.integer('samples', 1, 100_000);
    const file = options.text('prompts');
    for (const name of ['seed', 'prompt-tokens']) {
      if (file !== undefined && options.has(name))
        throw usageError(`--${name} is for stories made by rule, not --prompts`);
    }
    const given = file === undefined ? undefined : await readPrompts(file, count);
    const seed = options.integer('seed', 0, 2 ** 31) ?? 0;
    const asked = options.integer('prompt-tokens', 16);
    const out = await writableGiven(options, 'out');
    const host = await openHost({ ...request, options: { ...request.options, kvPolicy: policy } });
    let profile: MeasuredProfile;
    try {
      const tokens = asked ?? Math.min(DEFAULT_TOKENS, Math.floor(host.info.contextLength / 2));
      const samples =
        given ??
        Array.from({ length: count ?? DEFAULT_SAMPLES }, (_, at) => storyQuestion(tokens, seed * 100_003 + at));
      const { info, kept } = host;
      const measured = {
        info,
        kept: (sample: string | readonly number[]) => kept({ signal: terminal.signal }, sample),
      };
      profile = await measureProfile(measured, samples, { onProgress: (line) => terminal.progress(line) });
    } finally {
      await host.close();
    }
    if (out !== undefined) await writeGiven('out', out, `${JSON.stringify(profile)}\n`);
    await say(options, terminal, profile, profileTable(profile));
    if (out !== undefined) terminal.note(`written to ${out}`);
    return 0;
  },
};

/** Mean kept entries and their spread, a row per layer. */
function profileTable({ layers, std, kv_budget: budget, samples, prompt_tokens: tokens }: MeasuredProfile): string {
  const rows = layers.map((heads, layer) => [
    String(layer),
    ...heads.map((mean, head) => `${mean.toFixed(0)} ±${std[layer]?.[head]?.toFixed(0)}`),
  ]);
  const count = `${samples} sample${samples === 1 ? '' : 's'} of ${tokens.least === tokens.most ? tokens.most : `${tokens.least} to ${tokens.most}`} tokens`;
  const heads = (layers[0] ?? []).map((_, head) => `head ${head}`);
  return `kept entries of ${count} at a KV budget of ${budget}: mean ± standard deviation\n${alignedTable([['layer', ...heads], ...rows], 1)}`;
}
