import { commonPrefix } from '../../base/lists.js';
import { sha256 } from '../../base/math.js';
import { defined } from '../../base/options.js';
import { usageError } from '../../base/errors.js';
import { cutAtMedia } from '../../engine/serving/media.js';
import type {
  ContentPart,
  ConversationOptions,
  GenerateOptions,
  GenerateResult,
  LogitsOptions,
  Model,
  Prompt,
  SavedConversation,
} from '../../index.js';

/** What ends a call, and who hears of it while it runs. */
export interface Hearing {
  readonly signal?: AbortSignal;
  readonly onText?: (piece: string) => void;
  /** A row of f32 logits. */
  readonly onRow?: (position: number, row: Float32Array) => void;
}

export interface TextFeed {
  /** As it is, without the model's chat template. */
  readonly raw?: boolean;
  /** As in `Prompt`. */
  readonly special?: 'text' | 'token';
}

type AnswerOptions = Omit<GenerateOptions, 'signal' | 'onFirstLogits'>;
/** A text, or token ids, or either with images and recordings as data: URLs. */
type Fed = string | readonly number[] | FedMedia;
interface FedMedia {
  readonly prompt: string | readonly number[];
  readonly images?: readonly string[];
  readonly sounds?: readonly string[];
}

export interface TurnRequest {
  /** What the conversation was before is in `restore`: its keys and values are found in the model's cache. */
  readonly talk: Pick<ConversationOptions, 'system' | 'restore' | 'whenFull' | 'special'>;
  readonly content: string;
  readonly options: AnswerOptions;
}

/**
 * What commands ask of a model, in this process or in a page of Chrome: beside `Hearing`, what is given and what comes back is plain
 * data.
 */
export const modelCalls = (model: Model) => ({
  async generate({ signal, onText }: Hearing, prompt: Fed, feed: TextFeed, options: AnswerOptions) {
    const generation = model.generate(asPrompt(model, prompt, feed), { ...options, ...defined({ signal }) });
    for await (const piece of generation) onText?.(piece);
    return generation.result;
  },
  /** Answers several prompts side by side; results in the order of the prompts. */
  async generateMany({ signal }: Hearing, prompts: readonly Fed[], feed: TextFeed, options: AnswerOptions) {
    const asked = prompts.map((prompt) => asPrompt(model, prompt, feed));
    const results: GenerateResult[] = [];
    for await (const { index, ...result } of model.generateMany(asked, { ...options, ...defined({ signal }) })) {
      results[index] = result;
    }
    return results;
  },
  /**
   * @returns with the conversation of after the turn, and the SHA-256, in hex, of the f32 logits that its first token was drawn from;
   *   empty where none was
   */
  async turn({ signal, onText }: Hearing, { talk, content, options }: TurnRequest) {
    const conversation = model.conversation(talk);
    let logits: Float32Array | undefined;
    const own = { ...defined({ signal }), onFirstLogits: (row: Float32Array) => (logits = row) };
    const generation = conversation.send(content, { ...options, ...own });
    for await (const piece of generation) onText?.(piece);
    const result = await generation.result;
    const saved: SavedConversation = conversation.save();
    return { result, sha256: logits ? await sha256(new Uint8Array(logits.slice().buffer)) : '', saved };
  },
  /** Rows go to `onRow` alone. @returns their number */
  async logits(
    { signal, onRow }: Hearing,
    prompt: Fed,
    options: Pick<LogitsOptions, 'all' | 'promptLength' | 'adapter'>,
  ) {
    let rows = 0;
    const take = (position: number, row: Float32Array): void => {
      rows++;
      onRow?.(position, row);
    };
    const tokens = Array.isArray(prompt) ? (prompt as readonly number[]) : await model.readPrompt(prompt);
    await model.logits(tokens, { ...options, ...defined({ signal }), onRow: take });
    return rows;
  },
  /** Computes what all prompts have in common that begin with a text, and ends the model: then it is kept. @returns its tokens */
  async prefix({ signal }: Hearing, text: string, system: boolean) {
    const { hasChatTemplate: isChat } = model.info;
    if (system && !isChat) throw usageError('a system message needs a model with a chat template');
    const prompts = ['\n\n-', ' a', ' 1'].map((question): Prompt => {
      const asked = text.trim() + question;
      if (!isChat) return asked;
      const before = system ? [{ role: 'system', content: text } as const] : [];
      return { messages: [...before, { role: 'user', content: system ? question : asked }] };
    });
    const tokens = commonPrefix(prompts.map((prompt) => model.tokenize(prompt)));
    if (tokens.length > 0) await model.generate(tokens, { maxTokens: 1, ...defined({ signal }) }).result;
    await model.dispose();
    return tokens.length;
  },
  /** What compression keeps of a prompt, fed as it is. */
  kept: ({ signal }: Hearing, prompt: Fed) => model.kept(prompt, defined({ signal })),
  stats: async () => model.stats(),
});

export type ModelCalls = ReturnType<typeof modelCalls>;

/** A text as a message, where the model has a chat template. */
function asPrompt(model: Model, prompt: Fed, { raw = false, special }: TextFeed): Prompt {
  const isPlain = typeof prompt === 'string' || Array.isArray(prompt);
  const { prompt: text, ...media } = isPlain ? { prompt: prompt as string | readonly number[] } : (prompt as FedMedia);
  if (typeof text !== 'string' || !model.info.hasChatTemplate || raw) return prompt;
  const content = isPlain ? text : partsOf(text, media, model.info);
  return { messages: [{ role: 'user', content }], ...(special && { special }) };
}

/** Images and recordings where the text has placeholders; before it those of which it has none. */
function partsOf(
  text: string,
  { images = [], sounds = [] }: Omit<FedMedia, 'prompt'>,
  { imagePlaceholder = '<image>', soundPlaceholder = '<|audio|>' }: Model['info'],
): ContentPart[] {
  const marks = { images: imagePlaceholder, sounds: soundPlaceholder };
  const given = {
    images: images.map((image): ContentPart => ({ type: 'image', image })),
    sounds: sounds.map((audio): ContentPart => ({ type: 'audio', audio })),
  };
  const pieces = cutAtMedia(text, marks);
  const first: ContentPart[] = [];
  for (const kind of ['images', 'sounds'] as const) {
    const found = pieces.filter((piece) => piece.kind === kind).length;
    if (found === 0) first.push(...given[kind].splice(0));
    else if (found !== given[kind].length) {
      throw usageError(
        `the text has ${found} placeholders ${marks[kind]}; there are ${given[kind].length} ${kind}: give one for each`,
      );
    }
  }
  return [
    ...first,
    ...pieces.flatMap(({ kind, text: said }): ContentPart[] =>
      kind ? given[kind].splice(0, 1) : said === '' ? [] : [{ type: 'text', text: said }],
    ),
  ];
}
