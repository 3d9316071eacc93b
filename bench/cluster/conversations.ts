import { Random } from '../../src/base/random.js';
import { mixed } from '../../src/cluster/routing/prefixes.js';
import { type Arrival, type PrefixRequest, type PrefixSource, reusable } from './prefix_source.js';

/** Conversations below system prompts. All lengths in tokens, means; the defaults are assumptions. */
export interface ConversationOptions {
  /** Conversations that begin in a second. */
  readonly rate: number;
  readonly seed: number;
  /** Tenants, each with a system prompt of its own; tenant k is asked in proportion to 1 / k ** zipf. */
  readonly tenants: number;
  readonly zipf: number;
  readonly systemTokens: number;
  /** Questions of a conversation (geometric), tokens of each and of its answer. */
  readonly turns: number;
  readonly userTokens: number;
  readonly answerTokens: number;
  /** Seconds from an answer to the next question (exponential). */
  readonly thinkSeconds: number;
  /** A conversation that would be longer ends. */
  readonly contextTokens: number;
}

export const DEFAULT_CONVERSATIONS: Omit<ConversationOptions, 'rate' | 'seed'> = {
  tenants: 1000,
  zipf: 1,
  systemTokens: 1000,
  turns: 4,
  userTokens: 100,
  answerTokens: 150,
  thinkSeconds: 20,
  contextTokens: 8192,
};

/** Mean prompt tokens of a request: the k-th turn's prompt has k questions and k - 1 answers, and k is `turns` on average. */
export const meanPrompt = ({
  systemTokens,
  turns,
  userTokens,
  answerTokens,
}: Omit<ConversationOptions, 'rate' | 'seed'>): number =>
  systemTokens + turns * userTokens + (turns - 1) * answerTokens;

/** A request that knows what it belongs to. */
interface Turn extends PrefixRequest {
  readonly conversation: Conversation;
}

interface Conversation {
  readonly tenant: number;
  readonly id: number;
  readonly systemTokens: number;
  /** Asked and answered so far. */
  tokens: number;
}

const BLOCK_TOKENS = 64;
/** Spread of a system prompt's length, as the logarithm's deviation. */
const SYSTEM_SIGMA = 0.5;

export class Conversations implements PrefixSource {
  readonly blockTokens = BLOCK_TOKENS;
  readonly #random: Random;
  /** Of each tenant: the share of all conversations up to it; tokens of its system prompt; whether it was asked. */
  readonly #shares: Float64Array;
  readonly #system: Uint32Array;
  readonly #asked: Uint8Array;
  #count = 0;
  #clock = 0;

  constructor(private readonly options: ConversationOptions) {
    const { tenants, zipf, systemTokens, seed, contextTokens } = options;
    this.#random = new Random(seed);
    this.#shares = new Float64Array(tenants);
    let total = 0;
    for (let tenant = 0; tenant < tenants; tenant++) this.#shares[tenant] = total += (tenant + 1) ** -zipf;
    for (let tenant = 0; tenant < tenants; tenant++) this.#shares[tenant]! /= total;
    const mean = Math.exp((SYSTEM_SIGMA * SYSTEM_SIGMA) / 2);
    this.#system = Uint32Array.from({ length: tenants }, () =>
      Math.min(contextTokens / 2, (systemTokens / mean) * Math.exp(SYSTEM_SIGMA * this.#random.normal())),
    );
    this.#asked = new Uint8Array(tenants);
  }

  next(): Arrival {
    this.#clock += this.#exponential(1 / this.options.rate);
    const tenant = this.#tenant();
    const systemTokens = this.#system[tenant]!;
    const conversation = { tenant, id: this.#count++, systemTokens, tokens: systemTokens };
    const seen = this.#asked[tenant] === 1 ? systemTokens : 0;
    this.#asked[tenant] = 1;
    return this.#turn(conversation, seen, this.#clock);
  }

  after(request: PrefixRequest, now: number): Arrival | undefined {
    const { conversation } = request as Turn;
    const { turns, userTokens, answerTokens, contextTokens } = this.options;
    if (this.#random.next() < 1 / turns) return undefined;
    if (conversation.tokens + userTokens + answerTokens > contextTokens) return undefined;
    return this.#turn(conversation, conversation.tokens, now + this.#exponential(this.options.thinkSeconds));
  }

  #turn(conversation: Conversation, seenTokens: number, at: number): Arrival {
    const { userTokens, answerTokens } = this.options;
    const inputTokens = conversation.tokens + 1 + Math.floor(this.#exponential(userTokens));
    const outputTokens = 1 + Math.floor(this.#exponential(answerTokens));
    conversation.tokens = inputTokens + outputTokens;
    const whole = this.#blocks(conversation);
    const promptBlocks = Math.floor(inputTokens / BLOCK_TOKENS);
    const request: Turn = {
      conversation,
      inputTokens,
      outputTokens,
      prefix: whole.subarray(0, promptBlocks),
      whole,
      seenTokens: reusable(Math.floor(seenTokens / BLOCK_TOKENS), BLOCK_TOKENS, inputTokens),
      session: String(conversation.id),
    };
    return { at, request };
  }

  /** Blocks of the system prompt are the tenant's, further ones the conversation's. */
  #blocks({ tenant, id, systemTokens, tokens }: Conversation): Uint32Array {
    const shared = Math.floor(systemTokens / BLOCK_TOKENS);
    const [ofTenant, ofConversation] = [mixed(2 * tenant), mixed(2 * id + 1)];
    return Uint32Array.from({ length: Math.floor(tokens / BLOCK_TOKENS) }, (_, block) =>
      mixed((block < shared ? ofTenant : ofConversation) + Math.imul(block, 0x9e3779b1)),
    );
  }

  #tenant(): number {
    const drawn = this.#random.next();
    let [low, high] = [0, this.#shares.length - 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#shares[middle]! <= drawn) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #exponential(mean: number): number {
    return -mean * Math.log(1 - this.#random.next());
  }
}
