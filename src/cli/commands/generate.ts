/**
 * Room: the commands, a file each: what they take, print and return. This one is the model for the others; read it
 * with command.ts (..), which says what a command is.
 */

import { text as readAll } from 'node:stream/consumers';
import { usageError } from '../../base/errors.js';
import { sum } from '../../base/lists.js';
import { formatBytes } from '../../base/math.js';
import { isArranged } from '../../placement/index.js';
import type { TextFeed } from '../../app/shared/model_calls.js';
import type { GenerateOptions, GenerateResult, RunStats } from '../../index.js';
import type { Command, Terminal } from '../command.js';
import { loraOf, loraSpecs } from '../lora_options.js';
import { modelOptions, type ModelRequest, modelRequest, openHost } from '../model_options.js';
import { defined, type Options } from '../options.js';
import {
  chatSpecs,
  formSpecs,
  readChat,
  readForm,
  readSampling,
  readSpecial,
  samplingSpecs,
  specialSpecs,
} from '../answer_options.js';
import { mediaSpecs, readMedia, readPrompts, readTokenLists } from '../prompt_files.js';

export const command: Command = {
  summary: 'Continues a prompt. Where the model has a chat template the prompt is sent as a user message.',
  usage:
    'generate MODEL PROMPT [options]\nsplitkv generate --model MODEL (--prompt TEXT | --tokens 1,2,3 | --prompts FILE.json) [options]',
  words: ['model', 'prompt'],
  examples: [
    'splitkv generate smollm2-360m-instruct "Why is the sky blue?" --temperature 0.7',
    'splitkv generate ./my-model - --json < prompt.txt',
    'splitkv generate qwen3-0.6b "A colour?" --choice red --choice blue',
    'splitkv generate ./my-model "Hello" --ranks 2 --plan tp',
  ],
  options: {
    prompt: { value: 'TEXT', help: '- reads it from stdin' },
    tokens: {
      value: 'IDS',
      help: 'a prompt of token ids with commas, or @FILE.json with a list of them; needs no tokenizer, and is fed as it is',
    },
    prompts: {
      value: 'FILE.json',
      help: 'prompts, answered at once: a JSON list or JSON lines of texts, token ids, or objects with a prompt',
    },
    'prompt-cache': {
      value: 'FILE',
      help: "keeps the prompt's keys and values there, and begins with those that it has of this prompt's beginning",
    },
    ...mediaSpecs,
    'max-tokens': { value: 'N', help: 'default 256' },
    ...samplingSpecs,
    ...formSpecs,
    ...chatSpecs,
    ...specialSpecs,
    stop: { value: 'TEXT', multiple: true, help: 'end before this text; may be given several times' },
    raw: { help: 'feed the prompt as it is, without the chat template' },
    ...loraSpecs,
    ...modelOptions,
  },
  async run(options, terminal) {
    const generateOptions = await readOptions(options);
    const { signal } = terminal;
    const json = options.has('json');
    const feed = readFeed(options);
    const path = options.text('prompts');
    if (path !== undefined) {
      if (['prompt', 'tokens', 'image', 'audio'].some((name) => options.has(name)))
        throw usageError('--prompts takes the place of --prompt and --tokens, and has no --image and no --audio');
      const prompts = await readPrompts(path);
      return generateMany(prompts, options, feed, generateOptions, terminal);
    }
    const request = await cachedRequest(options, terminal);
    const media = await readMedia(options);
    const text = await readPrompt(options);
    const prompt = media ? { prompt: text, ...media } : text;

    const host = await openHost(request);
    let result: GenerateResult;
    try {
      const onText = (piece: string): void => void (json || terminal.write(piece));
      result = await host.generate({ signal, onText }, prompt, feed, generateOptions);
    } finally {
      await host.close();
    }
    // Without a tokenizer the ids are all there is.
    const calls = (result.tool_calls ?? []).map(({ function: of }) => `${of.name}(${of.arguments})`).join('\n');
    const ids = result.text === '' && !result.reasoning ? result.tokens.join(',') : '';
    await terminal.write(json ? `${JSON.stringify(result)}\n` : `${calls || ids}\n`);
    if (!json) {
      const { planReason, modelReason } = host.info;
      const why = planReason === undefined ? [] : [`plan ${result.stats.plan}: ${planReason}`];
      const predicted = options.has('verbose') ? [...why, ...predictedLines(result.stats)] : [];
      terminal.note(
        [
          ...(modelReason === undefined ? [] : [`auto: ${modelReason}`]),
          summary(result),
          ...compressionLines(result.stats),
          ...draftLines(result.stats),
          ...predicted,
          ...rankLines(result.stats),
          ...attentionLines(result.stats),
        ].join('\n'),
      );
    }
    return result.finish_reason === 'abort' ? 130 : 0;
  },
};

/** What the options say of the model, and of the file that its prompt is kept in. */
async function cachedRequest(options: Options, terminal: Terminal): Promise<ModelRequest> {
  const path = options.text('prompt-cache');
  if (path === undefined) return modelRequest(options, terminal);
  const other = ['kv-dir', 'kv-dir-size'].find((name) => options.has(name));
  if (other) throw usageError(`--prompt-cache and --${other}: leave one of them out`);
  const request = await modelRequest(options, terminal);
  if (request.host === 'chrome')
    throw usageError('--prompt-cache needs --host node: a page of Chrome has no files here');
  const { NodeKvFile } = await import('../../engine/cache/kept/node_folder.js');
  return {
    ...request,
    options: { ...request.options, kvDir: new NodeKvFile(path), kvDirBytes: Number.MAX_SAFE_INTEGER },
  };
}

async function generateMany(
  prompts: readonly (string | readonly number[])[],
  options: Options,
  feed: TextFeed,
  generateOptions: GenerateOptions,
  terminal: Terminal,
): Promise<number> {
  const host = await openHost(await cachedRequest(options, terminal));
  try {
    const all = await host.generateMany({ signal: terminal.signal }, prompts, feed, generateOptions);
    // Of the moment when most of them ran.
    const busiest = all
      .flatMap(({ stats }) => stats.attention ?? [])
      .toSorted((a, b) => sum(b.kv_tokens_per_step) - sum(a.kv_tokens_per_step))[0];
    const stats = { ...(await host.stats()), ...(busiest && { attention: busiest }) };
    if (options.has('json')) {
      const results = all.map(({ stats: _, ...result }) => result);
      await terminal.write(`${JSON.stringify({ results, stats })}\n`);
    } else {
      for (const [index, { text, tokens }] of all.entries()) {
        await terminal.write(`[${index}] ${text === '' ? tokens.join(',') : text}\n`);
      }
    }
    return all.some(({ finish_reason: reason }) => reason === 'abort') ? 130 : 0;
  } finally {
    await host.close();
  }
}

function readFeed(options: Options): TextFeed {
  const raw = options.has('raw');
  const special = readSpecial(options);
  if (raw && special.special !== undefined)
    throw usageError('--special is of messages; a --raw text has the control tokens that it spells out');
  return { raw, ...special };
}

async function readPrompt(options: Options): Promise<string | readonly number[]> {
  const tokens = options.text('tokens');
  if (tokens !== undefined) {
    if (options.has('prompt')) throw usageError('--prompt and --tokens are two prompts: give one of them');
    const [list = [], ...more] = await readTokenLists(tokens);
    if (more.length > 0) throw usageError(`--tokens ${tokens}: ${more.length + 1} lists; generate takes one`);
    return list;
  }
  const given = options.required('prompt', 'give a text, or - to read stdin; or --tokens');
  const prompt = given === '-' ? await readAll(process.stdin) : given;
  if (prompt === '') throw usageError('--prompt is empty: give a text to continue');
  return prompt;
}

async function readOptions(options: Options): Promise<GenerateOptions> {
  const stop = options.texts('stop');
  if (stop.includes('')) throw usageError('--stop is empty: give a text that ends the answer');
  return {
    ...defined({ maxTokens: options.integer('max-tokens', 1), stop: stop.length > 0 ? stop : undefined }),
    ...(options.has('verbose') && { timeAttention: true }),
    ...(await readSampling(options)),
    ...(await readForm(options)),
    ...(await readChat(options)),
    ...loraOf(options),
  };
}

const ENDINGS: Readonly<Record<GenerateResult['finish_detail'], string>> = {
  eos: 'ended by the model',
  stop_token: 'ended by a stop token',
  stop_string: 'ended by a stop text',
  max_tokens: 'ended by --max-tokens',
  context_full: 'ended because the context is full (see --context)',
  aborted: 'interrupted',
};

/** One line for people. */
export function summary({ tokens, finish_detail, seed, stats }: GenerateResult): string {
  return (
    `${tokens.length} tokens, ${stats.tokens_per_second.toFixed(1)} tokens/s, first after ${stats.ttft_ms.toFixed(0)} ms, ` +
    `${stats.dispatches_per_token.toFixed(1)} dispatches per token, seed ${seed}, ${ENDINGS[finish_detail]} (${stats.adapter})`
  );
}

/** What the planner expected of the run, where it chose the plan. */
function predictedLines({ predicted, tokens_per_second: speed, ttft_ms: ttft }: RunStats): string[] {
  if (!predicted) return [];
  const ratio = (expected: number, measured: number): string =>
    `${(expected / measured).toFixed(2)} times the measured`;
  return [
    `predicted: ${predicted.tokens_per_second.toFixed(1)} tokens/s (${ratio(predicted.tokens_per_second, speed)}), ` +
      `first after ${predicted.ttft_ms.toFixed(0)} ms (${ratio(predicted.ttft_ms, ttft)})`,
  ];
}

function draftLines({ speculation }: RunStats): string[] {
  if (!speculation || speculation.steps === 0) return [];
  const { drafted, accepted, steps } = speculation;
  return [`drafts: ${accepted} of ${drafted} right, verified in ${steps} steps`];
}

function compressionLines({ kv_compression: kv }: RunStats): string[] {
  if (!kv) return [];
  const { mean, least, most } = kv.kept_tokens;
  return [
    `prompt's cache: ${formatBytes(kv.bytes_before)} before, ${formatBytes(kv.bytes_after)} after compression (${kv.policy}, budget ${kv.budget}); ` +
      `heads keep ${mean.toFixed(0)} of ${kv.prompt_tokens} tokens (${least} to ${most})`,
  ];
}

/** What ranks read of the cache, and wait for the one that reads most. */
function attentionLines({ attention, plan }: RunStats): string[] {
  if (!attention || (!isArranged(plan) && attention.ms_per_step === undefined)) return [];
  const percent = (part: number): string => `${(part * 100).toFixed(1)}%`;
  const { predicted_utilisation: expected, ms_per_step: times } = attention;
  return [
    `attention: ranks read ${attention.kv_tokens_per_step.join(', ')} KV tokens in the first step, busy ${percent(attention.utilisation)}` +
      (expected === undefined ? '' : ` (${percent(expected)} expected)`) +
      (times === undefined ? '' : `; by their own clocks ${times.map((ms) => ms.toFixed(2)).join(', ')} ms a step`),
  ];
}

/** What each of several ranks held, sent and waited for. */
function rankLines({ ranks, plan, exchanges_per_token: exchanges }: RunStats): string[] {
  if (ranks.length === 1) return [];
  return [
    `plan ${plan}: ${exchanges} exchanges per token`,
    ...ranks.map((rank, index) => {
      const parts = [rank.compute_ms_per_token, rank.exchange_ms_per_token, rank.wait_ms_per_token];
      const [computes, exchanges, waits] = parts.map((ms) => ms.toFixed(2));
      return (
        `  rank ${index}: weights ${formatBytes(rank.weight_bytes)}, cache ${formatBytes(rank.kv_bytes)}, ` +
        `sends ${formatBytes(Math.round(rank.bytes_per_token))} per token; a token's ${sum(parts).toFixed(2)} ms: ` +
        `${computes} compute, ${exchanges} exchange, ${waits} wait (${rank.adapter})`
      );
    }),
  ];
}
