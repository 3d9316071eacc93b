import { createInterface } from 'node:readline';
import { messageOf, usageError } from '../../base/errors.js';
import type { SavedConversation } from '../../index.js';
import type { Command, Terminal } from '../command.js';
import type { ModelHost } from '../hosts/node_host.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { defined, only, type Options } from '../options.js';
import { chatSpecs, readChat, readSampling, readSpecial, samplingSpecs, specialSpecs } from '../answer_options.js';
import { readTurns, type Turns } from '../prompt_files.js';
import { summary } from './generate.js';

export const command: Command = {
  summary:
    "A conversation by the model's chat template: in the terminal, or with the turns of a file. Each turn computes only what is new.",
  words: ['model'],
  examples: [
    'splitkv chat smollm2-360m-instruct',
    'splitkv chat ./my-model --system "You answer in one sentence." --when-full forget',
  ],
  usage: 'chat MODEL [--system TEXT] [--turns FILE.json --json] [options]',
  options: {
    system: { value: 'TEXT', help: 'the system message' },
    turns: {
      value: 'FILE.json',
      help: '{"system"?, "turns": [text, ...], "max_tokens"?, "temperature"?, "seed"?}: asks them one after the other',
    },
    'no-reuse': { help: 'compute every turn whole; tokens and sha256 are the same' },
    'when-full': {
      value: 'HOW',
      help: "when the context is full: 'error' (default), or 'forget' the oldest turns",
    },
    'max-tokens': { value: 'N', help: 'of each answer; default 256' },
    ...samplingSpecs,
    ...only(chatSpecs, 'no-thinking', 'template-kwargs'),
    ...specialSpecs,
    ...modelOptions,
  },
  async run(options, terminal) {
    const maxTokens = options.integer('max-tokens', 1);
    const sampling = {
      ...(await readSampling(options)),
      ...(await readChat(options)),
      ...(maxTokens !== undefined && { maxTokens }),
    };
    const reuse = !options.has('no-reuse');
    const whenFull = options.oneOf('when-full', ['error', 'forget']) ?? 'error';
    const path = options.text('turns');
    if (path === undefined && options.has('json')) throw usageError('--json needs --turns FILE.json');
    const file = path === undefined ? undefined : await readTurns(path);
    const host = await openHost(await modelRequest(options, terminal));
    const system = options.text('system') ?? file?.system;
    const talk = { whenFull, ...readSpecial(options), ...defined({ system }) };
    const how = { ...file?.options, ...sampling, cachePrompt: reuse };
    let restore: SavedConversation | undefined;
    const ask: Ask = async (content, signal = terminal.signal) => {
      const onText = (piece: string): void => void (options.has('json') || terminal.write(piece));
      const request = { talk: { ...talk, ...defined({ restore }) }, content, options: how };
      const told = await host.turn({ signal, onText }, request);
      restore = told.saved;
      onText('\n');
      return told;
    };
    try {
      return file ? await askAll(host, file, ask, options, terminal) : await converse(ask, options, terminal);
    } finally {
      await host.close();
    }
  },
};

/** Asks, and writes the answer as it comes, but for JSON. */
type Ask = (content: string, signal?: AbortSignal) => ReturnType<ModelHost['turn']>;

/** The turns of a file, one after the other. */
async function askAll(
  host: ModelHost,
  { turns }: Turns,
  ask: Ask,
  options: Options,
  terminal: Terminal,
): Promise<number> {
  const json = options.has('json');
  const told: object[] = [];
  for (const content of turns) {
    if (!json) await terminal.write(`> ${content}\n`);
    const { result, sha256 } = await ask(content);
    const { text, tokens, prompt_tokens, finish_reason, stats } = result;
    const { cached_tokens = 0, ttft_ms } = stats;
    told.push({ text, tokens, prompt_tokens, cached_tokens, ttft_ms, finish_reason, sha256 });
    if (finish_reason === 'abort') return 130;
  }
  if (json) await terminal.write(`${JSON.stringify({ turns: told, stats: await host.stats() })}\n`);
  return 0;
}

/** In the terminal: a line is a message; Ctrl-C stops an answer, and ends where none is being written. */
async function converse(ask: Ask, options: Options, terminal: Terminal): Promise<number> {
  const lines = createInterface({ input: process.stdin, ...(process.stdin.isTTY && { output: process.stderr }) });
  let answering: AbortController | undefined;
  const interrupt = (): boolean => {
    if (!answering || answering.signal.aborted) {
      lines.close();
      return answering === undefined;
    }
    answering.abort();
    return true;
  };
  // In a terminal readline takes Ctrl-C.
  lines.on('SIGINT', interrupt);
  terminal.onInterrupt?.(interrupt);
  if (process.stdin.isTTY) terminal.note('Ctrl-C stops an answer, twice ends.');
  const prompt = (): void => {
    if (process.stdin.isTTY) lines.setPrompt('> ');
    if (process.stdin.isTTY) lines.prompt();
  };
  prompt();
  for await (const line of lines) {
    const content = line.trim();
    if (content === '') {
      prompt();
      continue;
    }
    answering = new AbortController();
    const signal = AbortSignal.any([terminal.signal, answering.signal]);
    try {
      const { result } = await ask(content, signal);
      if (options.has('verbose')) terminal.note(summary(result));
    } catch (error) {
      if (terminal.signal.aborted) throw error;
      terminal.note(`splitkv: ${messageOf(error)}`);
    }
    answering = undefined;
    if (terminal.signal.aborted) break;
    prompt();
  }
  terminal.onInterrupt?.(undefined);
  return 0;
}
