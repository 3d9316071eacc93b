import { contextFullError, type ErrorCode, SplitkvError, usageError } from '../../base/errors.js';
import { isObject, show } from '../../base/json.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { type ChatMessage, Tokenizer, type TokenizerFiles } from '../../tokenizer/index.js';
import { fillFormat, type FillFormat } from '../../chat_formats/fill_in.js';
import { type ChatOptions, checkTools, shownTools } from '../../chat_formats/tools.js';
import type {
  ChatMessage as ChatMessageOfApi,
  ContentPart,
  EmbedOptions,
  FillPrompt,
  ImageSource,
  Prompt,
  SamplingOptions,
  SoundSource,
  TokenizeOptions,
} from '../contracts/api.js';
import type { Pictures } from './pictures.js';

/** What reads prompts: a model's tokenizer, or why it has none, and the tokens that there is room for. */
export interface PromptReader extends Pick<PromptSource, 'contextLength' | 'prompts'> {
  readonly tokenizer: Tokenizer | undefined;
  /** What text fails with, where the folder's tokenizer can't be read. */
  readonly noTokenizer?: SplitkvError | undefined;
}

/** What a PromptReader is made of, as data that a worker can be sent. */
export interface PromptSource {
  readonly contextLength: number;
  /** What is put before texts that are embedded, by name. */
  readonly prompts?:
    | { readonly named: Readonly<Record<string, string>>; readonly usual: string | undefined }
    | undefined;
  readonly tokenizerFiles?: TokenizerFiles | undefined;
  readonly noTokenizer?: { readonly code: ErrorCode; readonly message: string } | undefined;
}

/** Reads prompts as the model that the source is of. */
export const promptReader = async ({ tokenizerFiles, noTokenizer, ...same }: PromptSource): Promise<PromptReader> => ({
  ...same,
  tokenizer: tokenizerFiles && (await Tokenizer.load(tokenizerFiles)),
  noTokenizer: noTokenizer && new SplitkvError(noTokenizer.code, noTokenizer.message),
});

export const isChat = (prompt: Prompt): boolean =>
  typeof prompt === 'object' && prompt !== null && 'messages' in prompt && prompt.messages !== undefined;

/** What prompts may have beside text, in order, each kind by itself. */
export interface Media {
  readonly images: readonly ImageSource[];
  readonly sounds: readonly SoundSource[];
}

export const KINDS = ['images', 'sounds'] as const;

export const hasMedia = (prompt: Prompt): boolean =>
  typeof prompt === 'object' &&
  prompt !== null &&
  ('images' in prompt ||
    'sounds' in prompt ||
    ('messages' in prompt &&
      Array.isArray(prompt.messages) &&
      prompt.messages.some(
        (message) =>
          Array.isArray(message?.content) &&
          message.content.some(
            (part: { type?: unknown }) => part?.type !== 'text' && Object.hasOwn(PARTS, String(part?.type)),
          ),
      )));

/** Of any prompt. @throws SplitkvError `usage` for what are no parts of messages, or no list of images or sounds */
export function mediaIn(prompt: Prompt): Media {
  const { messages, ...given } = prompt as Partial<Media> & { readonly messages?: readonly ChatMessageOfApi[] };
  const kind = KINDS.find((each) => each in given);
  if (kind && messages) throw usageError(`${kind} beside messages: put them into a message, as a part of its content`);
  const wrong = KINDS.find((each) => each in given && !Array.isArray(given[each]));
  if (wrong) throw usageError(`${wrong}: expected a list; leave it out of a prompt without`);
  return { ...mediaOf(messages ?? []), ...given };
}

export function mediaOf(messages: readonly Pick<ChatMessageOfApi, 'content'>[]): Media {
  const parts = partsOf(messages);
  return {
    images: parts.flatMap((part) =>
      part.type === 'image' ? [part.image] : part.type === 'image_url' ? [part.image_url.url] : [],
    ),
    sounds: parts.flatMap((part) =>
      part.type === 'audio'
        ? [part.audio]
        : part.type === 'input_audio'
          ? [`data:audio/${part.input_audio.format};base64,${part.input_audio.data}`]
          : [],
    ),
  };
}

const hasTexts = (of: unknown, ...keys: string[]): boolean =>
  isObject(of) && keys.every((key) => typeof of[key] === 'string');

/** By type of a part: whether it has what its type says. */
const PARTS: Readonly<Record<ContentPart['type'], (part: Readonly<Record<string, unknown>>) => boolean>> = {
  text: (part) => hasTexts(part, 'text'),
  image: () => true,
  image_url: (part) => hasTexts(part['image_url'], 'url'),
  audio: () => true,
  input_audio: (part) => hasTexts(part['input_audio'], 'data', 'format'),
};

/** All that messages are made of, but plain texts. @throws SplitkvError `usage` for what is no part */
function partsOf(messages: readonly Pick<ChatMessageOfApi, 'content'>[]): ContentPart[] {
  return messages.flatMap((message, index) => {
    const content: unknown = message?.content;
    if (!Array.isArray(content)) return [];
    for (const [at, part] of (content as unknown[]).entries()) {
      const { type } = isObject(part) ? part : {};
      if (isObject(part) && Object.hasOwn(PARTS, String(type)) && PARTS[type as ContentPart['type']](part)) continue;
      throw usageError(
        `messages[${index}].content[${at}] is no part (its type: ${show(type)}); expected {type: 'text', text}, {type: 'image', image}, ` +
          "{type: 'image_url', image_url: {url}}, {type: 'audio', audio} or {type: 'input_audio', input_audio: {data, format}}",
      );
    }
    return content as ContentPart[];
  });
}

/** A message as a template sees it: parts say only where its media are. */
export const withoutMedia = (message: ChatMessageOfApi): ChatMessage => ({
  ...message,
  content: Array.isArray(message.content)
    ? (message.content as readonly ContentPart[]).map((part) =>
        part.type === 'text' ? part : { type: part.type.includes('image') ? 'image' : 'audio' },
      )
    : message.content,
});

const TAKERS = {
  images: 'one that takes images, such as SmolVLM, with images: true (--images)',
  sounds: 'Gemma 4 E2B, E4B or 12B, with sound: true (--sound)',
};

/** @param taken by kind, whether the model takes it; undefined: none @throws SplitkvError `usage` for what it doesn't take */
export function checkTaken(media: Media, taken: Readonly<Partial<Record<keyof Media, unknown>>> = {}): void {
  for (const kind of KINDS) {
    if (media[kind].length === 0 || taken[kind]) continue;
    const how = Object.values(taken).some(Boolean) ? 'without their encoder' : 'for text alone';
    throw usageError(`the prompt has ${kind}, and this model is loaded ${how}: load ${TAKERS[kind]}`);
  }
}

/**
 * The ids that a prompt feeds, where it may have images or recordings.
 * @param pictures undefined: the model is for text alone
 * @throws as `promptTokens`; SplitkvError `usage` for what the model doesn't take
 */
export async function promptIds(
  prompt: Prompt,
  reader: PromptReader,
  pictures: Pick<Pictures, 'ids'> | undefined,
  options: TokenizeOptions = {},
): Promise<readonly number[]> {
  if (!hasMedia(prompt)) return promptTokens(prompt, reader, options);
  if (!pictures) checkTaken(mediaIn(prompt));
  return pictures ? pictures.ids(prompt, reader, options) : promptTokens(prompt, reader, options);
}

const isFill = (prompt: Prompt): prompt is FillPrompt =>
  typeof prompt === 'object' && prompt !== null && 'prefix' in prompt;

const fillOf = (tokenizer: Tokenizer): FillFormat | undefined => fillFormat((token) => tokenizer.idOf(token));

/** Whether a key of `logitBias` is a token's id, and no text. */
export const isId = (key: string): boolean => /^\d+$/.test(key);

/**
 * With the tokens that end what fills a gap, and those of the texts that `logitBias` names: each of a text's tokens has its bias.
 * @throws SplitkvError `io` or `unsupported` for texts where there is no tokenizer
 */
export function withTokens<Options extends Pick<SamplingOptions, 'stopTokenIds' | 'logitBias'>>(
  prompts: readonly Prompt[],
  options: Options,
  reader: PromptReader,
): Options {
  const { stopTokenIds = [], logitBias } = options;
  const { tokenizer } = reader;
  const { ends } = (tokenizer && prompts.some(isFill) && fillOf(tokenizer)) || {};
  const biases = logitBias instanceof Map ? [] : (Object.entries(logitBias ?? {}) as [string, number][]);
  const idsOf = (key: string): number[] =>
    isId(key) ? [Number(key)] : needTokenizer(reader, 'a bias of a text').encode(key, { addSpecial: false });
  return {
    ...options,
    ...(ends && { stopTokenIds: [...stopTokenIds, ...ends] }),
    ...(biases.some(([key]) => !isId(key)) && {
      logitBias: new Map(biases.flatMap(([key, bias]) => idsOf(key).map((id) => [id, bias] as const))),
    }),
  };
}

/** @throws SplitkvError `usage` where the model has no tokens for it */
function fillTokens({ prefix, suffix, files }: FillPrompt, addSpecial: boolean, tokenizer: Tokenizer): number[] {
  const fill = fillOf(tokenizer);
  if (!fill)
    throw usageError("suffix: this model can't fill in: its vocabulary has no tokens for it, such as <|fim_prefix|>");
  const asText = (content: string): string => tokenizer.asText([{ role: 'user', content }])[0]!.content as string;
  const encode = (text: string): number[] => (text === '' ? [] : tokenizer.encode(asText(text), { addSpecial: false }));
  const { bosId } = tokenizer;
  const begins = addSpecial && bosId !== null && tokenizer.encode('a')[0] === bosId;
  return [...(begins ? [bosId] : []), ...fill.write({ prefix, suffix, files }, encode)];
}

/** What a model does with texts, for who asks before. */
export interface TextFacts {
  /** Its chat template; '' where it has none. */
  readonly template: string;
  /** Tokens that begin and end its texts. */
  readonly bos: string;
  readonly eos: string;
  /** The template shows tools. */
  readonly shownTools: boolean;
  /** Its thoughts can be told apart. */
  readonly thinks: boolean;
  /** It fills gaps. */
  readonly fillsIn: boolean;
  /** Of its weights' file. */
  readonly format: 'gguf' | 'safetensors';
}

export function textFacts(tokenizer: Tokenizer | undefined, format: TextFacts['format']): TextFacts {
  const template = tokenizer?.template ?? '';
  const tokenText = (id: number | null | undefined): string =>
    id == null ? '' : tokenizer!.decode([id], { skipSpecial: false });
  return {
    template,
    bos: tokenText(tokenizer?.bosId),
    eos: tokenText(tokenizer?.eosIds[0]),
    shownTools: /\btools\b/.test(template),
    thinks: tokenizer?.format.thinks ?? false,
    fillsIn: tokenizer !== undefined && fillOf(tokenizer) !== undefined,
    format,
  };
}

/** The variables of a template that options ask for. */
export const templateVariables = ({ enableThinking, chatTemplateKwargs }: ChatOptions): Record<string, unknown> => ({
  // Qwen's name and most others', and that of Granite and DeepSeek.
  ...(enableThinking !== undefined && { enable_thinking: enableThinking, thinking: enableThinking }),
  ...chatTemplateKwargs,
});

/**
 * The ids that a prompt feeds. Of a text that is much too long the beginning alone is tokenized.
 * @throws SplitkvError `usage` for what is no prompt, `context_full` for more tokens than there is room for, `io` or `unsupported`
 *   where there is no tokenizer
 */
export function promptTokens(prompt: Prompt, reader: PromptReader, options: TokenizeOptions = {}): readonly number[] {
  const { addSpecial = true } = options;
  if (hasMedia(prompt))
    throw usageError('a prompt with images or sounds has ids once they are computed: readPrompt gives them');
  if (isFill(prompt)) return fitting(fillTokens(prompt, addSpecial, needTokenizer(reader, 'a gap to fill')), reader);
  if (typeof prompt === 'object' && !('messages' in (prompt ?? {}))) {
    if (!Array.isArray(prompt) || prompt.every((part) => typeof part !== 'string'))
      return fitting(tokenIds(prompt), reader);
    const tokenizer = needTokenizer(reader, 'a text among token ids');
    const parts = (prompt as readonly (number | string)[]).flatMap((part, at) =>
      typeof part === 'string' ? encode(part, addSpecial && at === 0, tokenizer, reader) : [part],
    );
    return fitting(parts, reader);
  }
  if (typeof prompt === 'string') {
    return encode(prompt, addSpecial, needTokenizer(reader, 'a text prompt'), reader);
  }
  const tokenizer = needTokenizer(reader, 'a chat prompt');
  return encode(chatText(prompt, tokenizer, options), false, tokenizer, reader);
}

/**
 * What a model's template makes of messages.
 * @param isShown for people: otherwise control tokens that messages spell out are marked as text, for the tokenizer
 * @throws SplitkvError `usage`
 */
export function chatText(
  prompt: Prompt,
  tokenizer: Tokenizer,
  { addGenerationPrompt = true, ...options }: TokenizeOptions = {},
  isShown = false,
): string {
  const { messages, special, ending } = (prompt ?? {}) as Readonly<Record<string, unknown>>;
  if (!Array.isArray(messages))
    throw usageError(`a prompt must be a text, token ids or {messages: [...]}; got ${typeof prompt}`);
  partsOf(messages);
  const asTokens = specialAsTokens(special) || isShown;
  const plain = hasMedia(prompt) ? messages.map(withoutMedia) : messages;
  // Only a template's own control tokens are some, unless asked for.
  const said = !asTokens && messages.length > 0 ? tokenizer.asText(plain) : plain;
  // The template writes the special tokens itself. What it leaves out of the messages takes no room, so its text is what counts.
  checkTools(options);
  const tools = shownTools(options);
  const opens = addGenerationPrompt && endingOf(ending) === 'answer';
  const told = { addGenerationPrompt: opens, variables: templateVariables(options), ...(tools && { tools }) };
  const render = (given: readonly ChatMessage[]): string => tokenizer.applyChatTemplate(given, told);
  return ending === 'continue' ? unfinished(said, render) : render(said);
}

/**
 * The ids of a text to embed, with the model's own words before it.
 * @throws as `promptTokens`; `usage` for a name that the model's files don't have, and for a prompt of what is no text
 */
export function embedTokens(
  text: Prompt,
  reader: PromptReader,
  { prompt, promptName, truncate = false }: Pick<EmbedOptions, 'prompt' | 'promptName' | 'truncate'> = {},
): readonly number[] {
  const { named = {}, usual } = reader.prompts ?? {};
  const isAsked = prompt !== undefined || promptName !== undefined;
  if (prompt !== undefined && promptName !== undefined) throw usageError('prompt and promptName: give one of them');
  if (typeof text !== 'string') {
    if (isAsked) throw usageError('a prompt is put before texts, not before token ids or messages');
    return promptTokens(text, reader);
  }
  const name = promptName ?? usual;
  if (promptName !== undefined && !Object.hasOwn(named, promptName)) {
    const known = Object.keys(named);
    throw usageError(
      `promptName '${promptName}': this model's files have ${known.length > 0 ? known.join(', ') : 'no prompts'}`,
    );
  }
  const whole = (prompt ?? (name === undefined ? '' : (named[name] ?? ''))) + text;
  if (truncate) return needTokenizer(reader, 'a text').encodeWithin(whole, reader.contextLength);
  return orTruncate(() => promptTokens(whole, reader));
}

/** @throws as the work; of a text that is too long with another way out */
export function orTruncate<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof SplitkvError && error.code === 'context_full')) throw error;
    const { code, message, details } = error;
    throw new SplitkvError(code, `${message}; truncate: true cuts a text that is too large at its end`, { details });
  }
}

/** @throws SplitkvError `usage` */
function endingOf(ending: unknown = 'answer'): unknown {
  if (['answer', 'none', 'continue'].includes(ending as string)) return ending;
  throw usageError(`ending is ${show(ending)}; expected 'answer', 'none' or 'continue'`);
}

/** Messages as far as the last one's text goes: a word behind it, which the template keeps there, says where that is. @throws SplitkvError `usage` */
function unfinished(messages: readonly ChatMessage[], render: (messages: readonly ChatMessage[]) => string): string {
  const last = messages.at(-1);
  const content: unknown = last?.content;
  if (last?.role !== 'assistant' || typeof content !== 'string' || last['tool_calls']) {
    throw usageError("ending 'continue': the last message must be a text of the assistant");
  }
  let mark = 'goes-on-here';
  while (content.includes(mark)) mark += '.';
  const text = render([...messages.slice(0, -1), { ...last, content: content + mark }]);
  const end = text.lastIndexOf(mark);
  if (end < 0) throw usageError("ending 'continue': the model's chat template doesn't show the last message");
  return text.slice(0, end);
}

/** Whether control tokens that messages spell out are tokens. @throws SplitkvError `usage` */
export function specialAsTokens(special: unknown = 'text'): boolean {
  if (special === 'text' || special === 'token') return special === 'token';
  throw usageError(`special is ${JSON.stringify(special)}; expected 'text' or 'token'`);
}

function encode(text: string, addSpecial: boolean, tokenizer: Tokenizer, reader: PromptReader): readonly number[] {
  const { contextLength } = reader;
  const fewest = tokenizer.fewestTokens(text, contextLength);
  if (fewest > contextLength) throw contextFullError(fewest, contextLength, undefined, true);
  return fitting(tokenizer.encode(text, { addSpecial }), reader);
}

function fitting(ids: readonly number[], { contextLength }: PromptReader): readonly number[] {
  if (ids.length > contextLength) throw contextFullError(ids.length, contextLength);
  return ids;
}

/** Ids that end a text. */
export const eosIds = (config: ModelConfig, tokenizer: Tokenizer | undefined): readonly number[] => [
  ...new Set([...config.eosTokenIds, ...(tokenizer?.eosIds ?? [])]),
];

/** @throws SplitkvError `io` or `unsupported` where there is none */
export function needTokenizer(
  { tokenizer, noTokenizer }: Pick<PromptReader, 'tokenizer' | 'noTokenizer'>,
  what: string,
): Tokenizer {
  if (tokenizer) return tokenizer;
  throw new SplitkvError(
    noTokenizer?.code ?? 'io',
    `${what} needs a tokenizer: ${noTokenizer?.message ?? 'the model has none'}; or give token ids`,
    { cause: noTokenizer },
  );
}

/** Token ids in any list-like form as an array. @throws SplitkvError `usage` for anything else. */
export function tokenIds(tokens: unknown): readonly number[] {
  if (Array.isArray(tokens)) return tokens as number[];
  if (tokens instanceof Uint32Array || tokens instanceof Int32Array) return [...tokens];
  throw usageError(
    `token ids must be an array, Uint32Array or Int32Array; got ${tokens === null ? 'null' : typeof tokens}`,
  );
}
