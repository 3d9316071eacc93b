import { join } from 'node:path';
import { usageError } from '../../base/errors.js';
import { isObject } from '../../base/json.js';
import { cacheFolder } from '../../engine/measure/stores/node_store.js';
import type { SavedConversation } from '../../index.js';
import type { Command, Terminal } from '../command.js';
import type { ModelHost } from '../hosts/node_host.js';
import { loraOf, loraSpecs } from '../lora_options.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { defined, only, type Options, readGivenJson, writeGiven } from '../options.js';
import { chatSpecs, readChat, readSampling, readSpecial, samplingSpecs, specialSpecs } from '../answer_options.js';
import { readTurns, type Turns } from '../prompt_files.js';
import { converse, type Talk } from '../terminal/converse.js';
import { readMessages } from '../terminal/messages.js';
import { WordWrap } from '../terminal/word_wrap.js';
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
    ...loraSpecs,
    ...modelOptions,
  },
  async run(options, terminal) {
    const maxTokens = options.integer('max-tokens', 1);
    const sampling = {
      ...(await readSampling(options)),
      ...(await readChat(options)),
      ...(maxTokens !== undefined && { maxTokens }),
      ...loraOf(options),
    };
    const reuse = !options.has('no-reuse');
    const whenFull = options.oneOf('when-full', ['error', 'forget']) ?? 'error';
    const path = options.text('turns');
    if (path === undefined && options.has('json')) throw usageError('--json needs --turns FILE.json');
    const file = path === undefined ? undefined : await readTurns(path);
    const talk = new HostTalk(options, terminal, {
      host: await openHost(await modelRequest(options, terminal)),
      system: options.text('system') ?? file?.system,
      talk: { whenFull, ...readSpecial(options) },
      options: { ...file?.options, ...sampling, cachePrompt: reuse },
    });
    const { modelReason } = talk.host.info;
    if (modelReason !== undefined) terminal.note(`auto: ${modelReason}`);
    try {
      return await (file ? askAll(talk, file, options, terminal) : atTerminal(talk, terminal));
    } finally {
      await talk.host.close();
    }
  },
};

type TurnRequest = Parameters<ModelHost['turn']>[1];

interface TalkState {
  host: ModelHost;
  system: string | undefined;
  readonly talk: Omit<TurnRequest['talk'], 'system' | 'restore'>;
  readonly options: TurnRequest['options'];
}

/** A temperature for another answer, where answers are greedy: the same one would come again. */
const ANOTHER = 0.7;

class HostTalk implements Talk {
  #saved: SavedConversation | undefined;
  /** The last question, and the conversation before it. */
  #last: { readonly content: string; readonly before: SavedConversation | undefined } | undefined;

  constructor(
    private readonly options: Options,
    private readonly terminal: Terminal,
    private readonly state: TalkState,
  ) {}

  get host(): ModelHost {
    return this.state.host;
  }

  /** Asks, and writes the answer as it comes, but for JSON. */
  async ask(
    content: string,
    signal: AbortSignal,
    options: TurnRequest['options'] = {},
  ): Promise<Awaited<ReturnType<ModelHost['turn']>>> {
    const { host, system, talk, options: always } = this.state;
    const isQuiet = this.options.has('json');
    const wrap = process.stdout.isTTY ? new WordWrap(this.terminal.columns ?? 80) : undefined;
    const write = (text: string): void => void (isQuiet || this.terminal.write(text));
    const onText = (piece: string): void => write(wrap ? wrap.push(piece) : piece);
    const before = this.#saved;
    const request = { talk: { ...talk, ...defined({ system, restore: before }) }, content };
    const told = await host.turn({ signal, onText }, { ...request, options: { ...always, ...options } });
    this.#saved = told.saved;
    this.#last = { content, before };
    write(`${wrap?.end() ?? ''}\n`);
    if (this.options.has('verbose') && !isQuiet) this.terminal.note(summary(told.result));
    return told;
  }

  async again(signal: AbortSignal): Promise<void> {
    if (!this.#last) throw usageError('nothing was asked yet');
    const { content, before } = this.#last;
    this.#saved = before;
    // A seed would give the same draws.
    await this.ask(content, signal, { temperature: this.state.options?.temperature || ANOTHER, seed: undefined });
  }

  clear(): void {
    this.#saved = undefined;
    this.#last = undefined;
  }

  system(text: string | undefined): string | undefined {
    if (text !== undefined) {
      this.clear();
      this.state.system = text;
    }
    return this.state.system;
  }

  async save(path: string): Promise<void> {
    if (!this.#saved) throw usageError('nothing was said yet');
    await writeGiven('save', path, `${JSON.stringify(this.#saved)}\n`);
  }

  async load(path: string): Promise<number> {
    const saved = await readGivenJson('load', path);
    if (!isObject(saved) || !Array.isArray(saved['turns'])) {
      throw usageError(`${path} is no conversation that /save wrote`);
    }
    this.clear();
    this.#saved = saved as unknown as SavedConversation;
    this.state.system = this.#saved.system;
    return this.#saved.turns.length;
  }

  async model(name: string | undefined): Promise<string> {
    if (name !== undefined) {
      // The one that there is stays where another one can't be found.
      const request = await modelRequest(this.options.with('model', name), this.terminal);
      await this.state.host.close();
      this.state.host = await openHost(request);
      this.clear();
    }
    return this.state.host.info.name;
  }
}

async function askAll(talk: HostTalk, { turns }: Turns, options: Options, terminal: Terminal): Promise<number> {
  const json = options.has('json');
  const told: object[] = [];
  for (const content of turns) {
    if (!json) await terminal.write(`> ${content}\n`);
    const { result, sha256 } = await talk.ask(content, terminal.signal);
    const { text, tokens, prompt_tokens, finish_reason, stats } = result;
    const { cached_tokens = 0, ttft_ms } = stats;
    told.push({ text, tokens, prompt_tokens, cached_tokens, ttft_ms, finish_reason, sha256 });
    if (finish_reason === 'abort') return 130;
  }
  if (json) await terminal.write(`${JSON.stringify({ turns: told, stats: await talk.host.stats() })}\n`);
  return 0;
}

async function atTerminal(talk: HostTalk, terminal: Terminal): Promise<number> {
  let interrupt = (): boolean => false;
  const messages = readMessages(process, join(cacheFolder(), 'chat_history'), () => void interrupt());
  if (process.stdin.isTTY) terminal.note('Ask something; /help tells more.');
  const code = await converse(messages, talk, terminal, (handler) => {
    interrupt = handler;
    terminal.onInterrupt?.(handler);
  });
  terminal.onInterrupt?.(undefined);
  return code;
}
