import type { PortReason } from '../../../distributed/ports/port.js';
import type { Locks } from '../../../loader/cache/opfs.js';
import type {
  AdapterInfo,
  EmbedOptions,
  GenerateOptions,
  GenerationDelta,
  LoadOptions,
  LoadProgress,
  LogitsOptions,
  ModelInfo,
  Prompt,
  RerankOptions,
  RunStats,
  TokenizeOptions,
} from '../../contracts/api.js';
import type { PromptSource } from '../../serving/prompt_tokens.js';
import type { PromptRows } from '../generate.js';
import type { LoadedModel } from '../model.js';

/** What tabs meet by. */
export interface ShareWorld {
  readonly locks: Locks & Pick<LockManager, 'query'>;
  channel(name: string): BroadcastChannel;
  /** Loads the model in this tab, or this worker. */
  open(options: Pick<LoadOptions, 'signal' | 'onProgress' | 'onWarning'>): Promise<LoadedModel>;
  /** As the option. */
  readonly idle?: number | undefined;
  /** Puts the worker of all tabs in the line before this tab; resolves once it stands there, or can't. */
  readonly putWorkerInLine?: (() => Promise<void>) | undefined;
}

/** Clients ask on one channel; each is answered on its own, and all are told on a third. */
export const channelNames = (key: string) => ({
  host: `${key} host`,
  all: `${key} all`,
  one: (client: string) => `${key} ${client}`,
});

/** Each kind of message without what all of them have. */
export type Without<Message, Key extends PropertyKey> = Message extends unknown ? Omit<Message, Key> : never;

/** What clients know of the model without asking. */
export interface HostFacts {
  readonly info: ModelInfo;
  readonly prompts: PromptSource;
  readonly adapters: readonly AdapterInfo[];
  readonly stats: RunStats;
}

/** `host` is whom a message is meant for: another one has never heard of the call. */
export type ToHost = { readonly client: string } & (
  | { readonly type: 'hello'; readonly lock: string }
  | { readonly type: 'bye' }
  | {
      readonly type: 'call';
      readonly host: string;
      readonly call: number;
      readonly name: CallName;
      readonly given: readonly unknown[];
    }
  | { readonly type: 'stop'; readonly host: string; readonly call: number }
);

export type ToClient = { readonly host: string } &
  /** To all: there is a host, which loads. */
  (
    | { readonly type: 'here' }
    | { readonly type: 'progress'; readonly progress: LoadProgress }
    | { readonly type: 'warning'; readonly message: string }
    | { readonly type: 'failed'; readonly reason: PortReason }
    /** To one: the model is ready, `lock` is held while this host lives. */
    | { readonly type: 'welcome'; readonly lock: string; readonly facts: HostFacts }
    | ({ readonly call: number } & (
        | { readonly type: 'event'; readonly event: CallEvent }
        /** The GPU was lost and is back: what was told comes once more, from the beginning. */
        | { readonly type: 'again' }
        | { readonly type: 'answer'; readonly value: unknown; readonly stats: RunStats }
        | { readonly type: 'failure'; readonly reason: PortReason }
      ))
  );

/** What is told of a call before its answer. */
export type CallEvent =
  | { readonly delta: GenerationDelta }
  /** A row of f32 logits; `position` is -1 for those that a first token is drawn from. */
  | { readonly position: number; readonly row: Float32Array };

/** Who asks, what ends it, and who hears of it. */
interface Hearing {
  readonly client: string;
  readonly signal: AbortSignal;
  readonly onEvent: (event: CallEvent) => void;
}

type Plain<Options> = Omit<Options, 'signal' | 'client' | 'onFirstLogits' | 'onRow'>;
/** A prompt, or the rows of a conversation. */
export type AskedPrompt = { readonly prompt: Prompt } | { readonly rows: PromptRows };

/** What can be asked of the host's model: beside `Hearing` all is plain data. */
export const hostCalls = (model: LoadedModel) => ({
  async generate(
    { onEvent, ...own }: Hearing,
    asked: AskedPrompt,
    options: Plain<GenerateOptions>,
    wantsLogits: boolean,
  ) {
    const onFirstLogits = (row: Float32Array): void => onEvent({ position: -1, row });
    const all = { ...options, ...own, ...(wantsLogits && { onFirstLogits }) };
    const generation =
      'rows' in asked
        ? model.generation(() => ({ ...asked.rows, isChat: true }), all)
        : model.generate(asked.prompt, all);
    for await (const delta of generation.deltas()) onEvent({ delta });
    return generation.result;
  },
  async logits({ signal, onEvent }: Hearing, tokens: readonly number[], options: Plain<LogitsOptions>) {
    const onRow = (position: number, row: Float32Array): void => onEvent({ position, row });
    await model.logits(tokens, { ...options, signal, onRow });
  },
  embed: ({ client, signal }: Hearing, texts: string | readonly Prompt[], options: Plain<EmbedOptions>) =>
    model.embed(texts, { ...options, client, signal }),
  rerank: ({ client, signal }: Hearing, query: string, documents: readonly string[], options: Plain<RerankOptions>) =>
    model.rerank(query, documents, { ...options, client, signal }),
  kept: ({ signal }: Hearing, prompt: Prompt) => model.kept(prompt, { signal }),
  readPrompt: (_: Hearing, prompt: Prompt, options: TokenizeOptions) => model.readPrompt(prompt, options),
  keep: (_: Hearing, rows: PromptRows) => model.keep(rows),
  /** A loss is what the host recovers from. */
  recover: async (_: Hearing) => model.opened.group.assertUsable(),
  selfTest: ({ signal }: Hearing) => model.selfTest({ signal }),
});

type HostCalls = ReturnType<typeof hostCalls>;
export type CallName = keyof HostCalls;
type AllGiven = {
  readonly [Name in CallName]: Parameters<HostCalls[Name]> extends [Hearing, ...infer Rest] ? Readonly<Rest> : never;
};
export type Given<Name extends CallName> = AllGiven[Name];
export type Answered<Name extends CallName> = Awaited<ReturnType<HostCalls[Name]>>;
