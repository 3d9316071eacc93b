import type {
  ConversationOptions,
  GenerateOptions,
  GenerateResult,
  Model,
  Prompt,
  SavedConversation,
} from '../../index.js';

/** A turn of a conversation, as another process can ask for it. */
export interface TurnRequest {
  readonly talk: Pick<ConversationOptions, 'system' | 'restore' | 'whenFull' | 'special'>;
  readonly content: string;
  readonly options: Omit<GenerateOptions, 'signal' | 'onFirstLogits'>;
}

export interface TurnResult {
  readonly result: GenerateResult;
  /** Of the f32 logits that the turn's first token was drawn from, in hex; empty where none was. */
  readonly sha256: string;
  /** The conversation with this turn. */
  readonly saved: SavedConversation;
}

/** Runs a turn. What the conversation was before is in `talk.restore`: its keys and values are found in the model's cache. */
export async function chatTurn(
  model: Model,
  { talk, content, options }: TurnRequest,
  signal: AbortSignal,
  onText: (piece: string) => void,
): Promise<TurnResult> {
  const conversation = model.conversation(talk);
  let logits: Float32Array | undefined;
  const generation = conversation.send(content, { ...options, signal, onFirstLogits: (row) => (logits = row) });
  for await (const piece of generation) onText(piece);
  const result = await generation.result;
  return { result, sha256: logits ? await sha256(logits) : '', saved: conversation.save() };
}

async function sha256(row: Float32Array): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new Uint8Array(row.slice().buffer));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** How a text is fed. */
export interface TextFeed {
  /** As it is, without the model's chat template. */
  readonly raw?: boolean;
  /** As in `Prompt`. */
  readonly special?: 'text' | 'token';
}

/** A text as a message, where the model has a chat template. */
export const asPrompt = (
  model: Model,
  prompt: string | readonly number[],
  { raw = false, special }: TextFeed,
): Prompt =>
  typeof prompt === 'string' && model.info.hasChatTemplate && !raw
    ? { messages: [{ role: 'user', content: prompt }], ...(special && { special }) }
    : prompt;

/** Answers several prompts side by side; results in the order of the prompts. */
export async function answerAll(
  model: Model,
  prompts: readonly (string | readonly number[])[],
  feed: TextFeed,
  options: GenerateOptions,
): Promise<GenerateResult[]> {
  const asked = prompts.map((prompt) => asPrompt(model, prompt, feed));
  const results: GenerateResult[] = [];
  for await (const { index, ...result } of model.generateMany(asked, options)) results[index] = result;
  return results;
}
