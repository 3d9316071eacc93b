import { formatError, SplitkvError, unsupportedError, usageError } from '../../base/errors.js';
import { toBase64 } from '../../base/math.js';
import { checkOptions, isWithin, oneOf, type OptionsSchema } from '../../base/options.js';
import type { Tokenizer } from '../../tokenizer/index.js';
import type {
  ChatMessage,
  ContentPart,
  Conversation,
  ConversationOptions,
  GenerateOptions,
  GenerateResult,
  Generation,
  SavedConversation,
} from '../contracts/api.js';
import { DEFAULT_MAX_TOKENS } from '../contracts/options/sampling_rows.js';
import type { Pictures } from '../serving/pictures.js';
import type { PromptRows } from './generate.js';
import { checkTools, shownTools } from '../../chat_formats/tools.js';
import {
  checkTaken,
  mediaOf,
  needTokenizer,
  type PromptReader,
  specialAsTokens,
  templateVariables,
  withoutMedia,
} from '../serving/prompt_tokens.js';

/** `tokens` are empty where they say more than the answer (it was cut at a stop text). */
type Turn = SavedConversation['turns'][number];

export interface ConversationHost {
  readonly reader: PromptReader;
  /** Where the model takes images or sound. */
  readonly pictures: Pick<Pictures, 'ids' | 'placeholders'> | undefined;
  readonly name: string;
  /** Keeps keys and values of what was computed. */
  keep(rows: PromptRows): Promise<void>;
  /** Runs what `rows` gives. */
  generate(rows: () => Promise<PromptRows>, options: GenerateOptions): Generation;
}

const VERSION = 1;
const schema: OptionsSchema<ConversationOptions> = {
  system: true,
  restore: true,
  whenFull: oneOf(['error', 'forget']),
  about: true,
  special: true,
  adapter: true,
};
const saveSchema: OptionsSchema<{ readonly kv: true }> = { kv: true };

/**
 * Tokens of a conversation and which of them were generated: what is computed anew (after an eviction, a lost device, a reload) runs
 * through the kernels it ran through at first, and has the same bits.
 */
export class TalkingConversation implements Conversation {
  readonly #options: ConversationOptions;
  #turns: readonly Turn[];
  #answering = false;
  /** What the last answer was asked for with. */
  #given: GenerateOptions = {};
  readonly #looks: boolean;

  /** @throws SplitkvError `usage` for options that are none, `unsupported` where the model has no chat template */
  constructor(
    private readonly host: ConversationHost,
    options: ConversationOptions = {},
    turns?: readonly Turn[],
  ) {
    checkOptions('conversation', options, schema);
    const { restore } = options;
    specialAsTokens(options.special);
    const saved = restore === undefined ? undefined : readSaved(restore, host.name);
    const system = options.system ?? saved?.system;
    this.#options = { ...options, ...(system !== undefined && { system }) };
    this.#turns = turns ?? saved?.turns ?? [];
    this.#looks = saved?.kv === true;
    render(needTokenizer(host.reader, 'a conversation'), this.#messagesWith('')); // there is a template
  }

  get messages(): readonly ChatMessage[] {
    return this.#messagesWith([]);
  }

  #messagesWith(asked: Asked, turns = this.#turns): ChatMessage[] {
    const { system } = this.#options;
    const before: ChatMessage[] = system === undefined ? [] : [{ role: 'system', content: system }];
    return [...before, ...messagesOf(turns), ...askedOf(asked)];
  }

  send(content: Asked, options: GenerateOptions = {}): Generation {
    this.#check(content);
    return this.#answer('send', content, options);
  }

  continue(options: GenerateOptions = {}): Generation {
    const last = this.#turns.at(-1);
    if (!last) throw usageError('continue: there is no answer yet');
    if (last.calls) throw usageError("continue: the last answer called tools: send their results, {role: 'tool', ...}");
    return this.#replace(askedIn(last), options, last);
  }

  /** @param begun the answer goes on that this turn has */
  #answer(what: string, content: Asked, options: GenerateOptions, begun?: Turn): Generation {
    if (this.#answering)
      throw usageError(`${what}: an answer is being written; wait for its end, or fork the conversation`);
    const before = this.#turns;
    // What it begins with may be known as a text only.
    const asText = begun !== undefined && idsOf(begun).length === 0 ? begun.answer : '';
    this.#answering = true;
    this.#given = options;
    const rows = async (): Promise<PromptRows> => {
      const { rows: found, forgotten } = await this.#fit(content, options, begun);
      if (forgotten > 0) this.#turns = this.#turns.slice(forgotten);
      return { ...found, ...(this.#looks && { kept: true }) };
    };
    let generation: Generation;
    try {
      generation = this.host.generate(rows, options);
    } catch (error) {
      this.#answering = false;
      throw error;
    }
    const ended = (result?: GenerateResult): void => {
      this.#answering = false;
      if (!result || (result.finish_reason === 'abort' && result.tokens.length === 0)) {
        this.#turns = before;
        return;
      }
      const { text, tokens, tool_calls: calls, finish_detail: why, reasoning } = result;
      // Marks of channels are the template's to write, and what is said on others than the answer's isn't kept.
      const asTold =
        asText === '' &&
        why !== 'stop_string' &&
        !reasoning &&
        !calls &&
        this.host.reader.tokenizer?.format.name !== 'harmony';
      const isCut = result.finish_reason === 'length' || result.finish_reason === 'abort';
      const turn = {
        answer: asText + text,
        tokens: asTold ? tokens : [],
        ...(calls && { calls }),
        ...(isCut && !asTold && asText === '' && { cut: tokens }),
      };
      const asked = isParts(content)
        ? { user: textOf(content), parts: content }
        : typeof content === 'string'
          ? { user: content }
          : { user: '', results: content };
      this.#turns = [...this.#turns, { ...asked, ...turn }];
    };
    // Before whoever awaits the result goes on.
    const result = generation.result.then(
      (done) => {
        ended(done);
        return asText === '' ? done : { ...done, text: asText + done.text };
      },
      (error: unknown) => {
        ended();
        throw error;
      },
    );
    result.catch(() => {}); // who only iterates sees the error there
    return {
      result,
      deltas: () => generation.deltas(),
      [Symbol.asyncIterator]: () => generation[Symbol.asyncIterator](),
    };
  }

  /** @throws SplitkvError `usage` for what is neither a text nor the results of the last answer's calls */
  #check(content: Asked): void {
    if (typeof content === 'string') {
      if (content === '') throw usageError('send: the message is empty: give a text');
      return;
    }
    if (isParts(content)) {
      const { pictures, reader } = this.host;
      checkTaken(mediaOf([{ content }]), pictures?.placeholders(reader));
      return;
    }
    const isResult = (message: ChatMessage): boolean =>
      message?.role === 'tool' && typeof message.content === 'string' && typeof message.tool_call_id === 'string';
    if (!Array.isArray(content) || content.length === 0 || !content.every(isResult)) {
      throw usageError("send: give a text, or results such as {role: 'tool', tool_call_id, content}");
    }
    const ids = (this.#turns.at(-1)?.calls ?? []).map(({ id }) => id);
    const stray = content.find(({ tool_call_id: id }) => !ids.some((own) => own === id));
    if (stray) throw usageError(`send: the last answer made no call '${stray.tool_call_id}'`);
  }

  regenerate(options: GenerateOptions = {}): Generation {
    const last = this.#turns.at(-1);
    if (!last) throw usageError('regenerate: there is no answer yet');
    return this.#replace(askedIn(last), options);
  }

  edit(content: string | readonly ContentPart[], options: GenerateOptions = {}): Generation {
    if (this.#turns.length === 0) throw usageError('edit: there is no question yet; use send');
    return this.#replace(content, options);
  }

  /** Another last turn; the old one comes back where the new one fails. */
  #replace(content: Asked, options: GenerateOptions, begun?: Turn): Generation {
    const before = this.#turns;
    this.undo();
    let generation: Generation;
    try {
      if (!begun) this.#check(content);
      generation = this.#answer(begun ? 'continue' : 'send', content, options, begun);
    } catch (error) {
      this.#turns = before;
      throw error;
    }
    const undone = this.#turns;
    generation.result.then(
      () => {
        if (this.#turns === undone) this.#turns = before; // aborted before its first token
      },
      () => {
        this.#turns = before;
      },
    );
    return generation;
  }

  undo(turns = 1): void {
    if (this.#answering) throw usageError('undo: an answer is being written; wait for its end');
    if (!Number.isInteger(turns) || turns < 0 || turns > this.#turns.length) {
      throw usageError(`undo ${turns}: expected a number from 0 to the ${this.#turns.length} turns that there are`);
    }
    this.#turns = this.#turns.slice(0, this.#turns.length - turns);
  }

  fork(): Conversation {
    const { restore: _, ...options } = this.#options;
    return new TalkingConversation(this.host, options, this.#turns);
  }

  save(options: { readonly kv: true }): Promise<SavedConversation>;
  save(): SavedConversation;
  save(options?: { readonly kv: true }): SavedConversation | Promise<SavedConversation> {
    checkOptions('save', options ?? {}, saveSchema);
    return options?.kv ? this.#saveAll() : this.#saved();
  }

  async #saveAll(): Promise<SavedConversation> {
    const saved = this.#saved();
    if ((this.#given.adapter ?? this.#options.adapter) !== undefined)
      throw usageError("save: keys and values of adapters aren't kept; leave kv out");
    await this.host.keep(await this.#rows('', this.#options.about === undefined ? this.#turns : [], this.#given));
    return { ...saved, kv: true };
  }

  #saved(): SavedConversation {
    const { system } = this.#options;
    return {
      version: VERSION,
      model: this.host.name,
      ...(system !== undefined && { system }),
      turns: this.#turns.map((turn) => ({
        ...turn,
        tokens: [...turn.tokens],
        ...(turn.parts && { parts: turn.parts.map(savedPart) }),
      })),
    };
  }

  /** The rows of a question, after as many of the oldest turns are forgotten as must be. @throws SplitkvError `context_full` */
  async #fit(
    user: Asked,
    options: GenerateOptions,
    begun?: Turn,
  ): Promise<{ readonly rows: PromptRows; readonly forgotten: number }> {
    const { reader } = this.host;
    const { contextLength } = reader;
    const { whenFull = 'error', about } = this.#options;
    const asked = about === undefined || typeof user !== 'string' ? user : `${about.trim()} ${user}`;
    // Where turns are forgotten there is to be room for an answer.
    const room = Math.min(options.maxTokens ?? DEFAULT_MAX_TOKENS, Math.floor(contextLength / 4));
    const keptTurns = isQuestion(user) ? this.#turns.length : Math.max(0, this.#turns.length - 1);
    const most = about === undefined ? keptTurns : 0;
    for (let forgotten = 0; ; forgotten++) {
      const turns = about === undefined ? this.#turns.slice(forgotten) : [];
      // Results go with the calls that they are of.
      if (turns[0]?.results && forgotten < most) continue;
      const rows = await this.#rows(asked, turns, options, begun);
      const length = rows.prompt.length + (rows.continuation?.length ?? 0);
      const fits = length <= contextLength - (whenFull === 'forget' ? room : 0);
      if (fits || (forgotten === most && length <= contextLength)) return { rows, forgotten };
      if (whenFull === 'forget' && forgotten < most) continue;
      throw new SplitkvError(
        'context_full',
        `the conversation has ${length} tokens with this message; the context holds ${contextLength}: undo turns, begin anew, ` +
          "load with a longer context, or let the oldest turns be forgotten (whenFull: 'forget')",
        { details: { tokens: length, most: contextLength } },
      );
    }
  }

  async #rows(user: Asked, turns: readonly Turn[], given: GenerateOptions, begun?: Turn): Promise<PromptRows> {
    const { special } = this.#options;
    const options: RenderOptions = { ...given, ...(special && { special }) };
    const tokenizer = needTokenizer(this.host.reader, 'a conversation');
    const messages = this.#messagesWith(user, turns);
    checkTools(options);
    const { images, sounds } = mediaOf(messages);
    const left = { images: [...images], sounds: [...sounds] };
    // Each piece of the text has its placeholders, in the order of the images, and of the recordings.
    const encode = async (text: string): Promise<readonly number[]> => {
      const { pictures, reader } = this.host;
      if (!pictures || left.images.length + left.sounds.length === 0)
        return tokenizer.encode(text, { addSpecial: false });
      const marks = pictures.placeholders(reader);
      const countOf = (mark?: string): number => (mark === undefined ? 0 : text.split(mark).length - 1);
      const own = {
        images: left.images.splice(0, countOf(marks.images)),
        sounds: left.sounds.splice(0, countOf(marks.sounds)),
      };
      // What has no room is told by all of it.
      return pictures.ids({ prompt: text, ...own }, { ...reader, contextLength: Infinity }, { addSpecial: false });
    };
    if (begun) {
      const ids = idsOf(begun);
      if (ids.length > 0) return { ...(await this.#rows(user, turns, options)), continuation: ids };
      return { prompt: await encode(openText(tokenizer, messages, begun.answer, options)) };
    }
    const pieces = piecesOf(tokenizer, messages, turns, options);
    if (!pieces) return { prompt: await encode(render(tokenizer, messages, options)) };
    const prompt: number[] = [];
    const spans: [number, number][] = [];
    let text = '';
    for (const [index, piece] of pieces.entries()) {
      text += piece;
      const turn = turns[index];
      if (turn && turn.tokens.length === 0) {
        text += turn.answer;
        continue;
      }
      for (const id of await encode(text)) prompt.push(id);
      text = '';
      if (!turn) break;
      // The last one's keys and values may not have been computed; it is of the prompt.
      if (turn.tokens.length > 1) spans.push([prompt.length, prompt.length + turn.tokens.length - 1]);
      for (const id of turn.tokens) prompt.push(id);
    }
    return { prompt, generatedSpans: spans };
  }
}

const messagesOf = (turns: readonly Turn[]): ChatMessage[] =>
  turns.flatMap(({ answer, calls, ...turn }): ChatMessage[] => [
    ...askedOf(askedIn(turn)),
    { role: 'assistant', content: calls && answer === '' ? null : answer, ...(calls && { tool_calls: calls }) },
  ]);

/** All ids that were generated of an answer, where they are known. */
const idsOf = ({ tokens, cut = [] }: Turn): readonly number[] => (tokens.length > 0 ? tokens : cut);

/** A conversation that ends with an answer that isn't whole, of which only the text is known. @throws SplitkvError `unsupported` */
function openText(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  answer: string,
  options: RenderOptions,
): string {
  const last = { role: 'assistant', content: markOf(0) } as const;
  const [before] = cutAtMarks(render(tokenizer, [...messages, last], options, false), 1) ?? [];
  if (before === undefined) {
    throw unsupportedError("continue: this model's chat template doesn't let an answer stay open");
  }
  return before + answer;
}

/** A question, with images or recordings perhaps, or the results of tools. */
type Asked = string | readonly ContentPart[] | readonly ChatMessage[];
const isQuestion = (asked: Asked): asked is string | readonly ContentPart[] =>
  typeof asked === 'string' || isParts(asked);
const askedOf = (asked: Asked): readonly ChatMessage[] =>
  isQuestion(asked) ? [{ role: 'user', content: asked }] : asked;
const askedIn = ({ user, parts, results }: Pick<Turn, 'user' | 'parts' | 'results'>): Asked => results ?? parts ?? user;

const isParts = (asked: Asked): asked is readonly ContentPart[] =>
  Array.isArray(asked) &&
  asked.length > 0 &&
  (asked as readonly { type?: unknown }[]).every((part) => part?.type !== undefined);

const textOf = (parts: readonly ContentPart[]): string =>
  parts.map((part) => (part.type === 'text' ? part.text : '')).join('');

/** As plain JSON. @throws SplitkvError `usage` for an image or a recording that can't be */
function savedPart(part: ContentPart): ContentPart {
  const given: unknown = part.type === 'image' ? part.image : part.type === 'audio' ? part.audio : '';
  if (typeof given === 'string') return part;
  if (!(given instanceof Uint8Array)) {
    throw usageError(
      'save: a conversation keeps images and recordings that were given as data: URLs or as a Uint8Array of a file',
    );
  }
  const base64 = toBase64(given);
  return part.type === 'image'
    ? { type: 'image', image: `data:image/*;base64,${base64}` }
    : { type: 'audio', audio: `data:audio/*;base64,${base64}` };
}

type RenderOptions = GenerateOptions & Pick<ConversationOptions, 'special'>;

function render(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  options: RenderOptions = {},
  addGenerationPrompt = true,
): string {
  const tools = shownTools(options);
  const told = messages.map(withoutMedia);
  return tokenizer.applyChatTemplate(specialAsTokens(options.special) ? told : tokenizer.asText(told), {
    addGenerationPrompt,
    variables: templateVariables(options),
    ...(tools && { tools }),
  });
}

/** Stands for an answer; private-use characters, which no template looks at. */
const markOf = (index: number): string => `\uE000${index}\uE001`;

/** A rendered conversation cut at its marks; undefined where one isn't there just once. */
function cutAtMarks(text: string, marks: number): string[] | undefined {
  const pieces: string[] = [];
  let rest = text;
  for (let index = 0; index < marks; index++) {
    const [before, after, ...more] = rest.split(markOf(index));
    if (before === undefined || after === undefined || more.length > 0) return undefined;
    pieces.push(before);
    rest = after;
  }
  return [...pieces, rest];
}

/**
 * The template's text before, between and behind the answers, each as it was fed when its answer was asked for; undefined where the
 * template doesn't keep answers as they are (it cuts or moves them), so that the text is only known as a whole. Blanks around an answer
 * are those that were generated, whatever the template makes of them.
 */
function piecesOf(
  tokenizer: Tokenizer,
  messages: readonly ChatMessage[],
  turns: readonly Turn[],
  options: RenderOptions,
): readonly string[] | undefined {
  if (turns.length === 0) return [render(tokenizer, messages, options)];
  // How a call is told is the template's; what was computed of the text before is still found.
  if (messages.some(({ role, tool_calls: calls }) => role === 'tool' || calls)) return undefined;
  let answers = 0;
  const marked = messages.map((message) =>
    message.role === 'assistant' ? { ...message, content: markOf(answers++) } : message,
  );
  const pieces = cutAtMarks(render(tokenizer, marked, options), turns.length);
  if (!pieces) return undefined;
  const whole = render(tokenizer, messages, options);
  const joined = (of: (answer: string) => string): string =>
    pieces.map((piece, index) => piece + (turns[index] ? of(turns[index].answer) : '')).join('');
  if (whole !== joined((answer) => answer) && whole !== joined((answer) => answer.trim())) return undefined;
  const asked: string[] = [];
  for (const [index, piece] of pieces.slice(0, -1).entries()) {
    // Up to the question that this answer is to.
    const upTo = marked.slice(0, marked.length - 2 * (turns.length - index));
    const own = cutAtMarks(render(tokenizer, upTo, options), index)?.at(-1);
    if (own?.trimEnd() !== piece.trimEnd()) return undefined;
    asked.push(own);
  }
  return [...asked, ...pieces.slice(-1)];
}

const isIds = (value: unknown): boolean =>
  Array.isArray(value) && value.every((id) => isWithin(id, { integer: true, low: 0, high: 2 ** 32 - 1 }));
const isTurn = (turn: Partial<Turn> | null): boolean =>
  typeof turn?.user === 'string' &&
  typeof turn.answer === 'string' &&
  (turn.parts === undefined || isParts(turn.parts)) &&
  isIds(turn.tokens) &&
  (turn.cut === undefined || isIds(turn.cut));

/** @throws SplitkvError `format` for what `save` didn't write, `usage` for another model's */
function readSaved(saved: SavedConversation, model: string): Pick<SavedConversation, 'system' | 'turns' | 'kv'> {
  const { system, turns }: Partial<SavedConversation> = saved ?? {};
  const valid = (system === undefined || typeof system === 'string') && Array.isArray(turns) && turns.every(isTurn);
  if (!valid) throw formatError("restore: this isn't what a conversation's save() gave");
  if (saved.version !== VERSION) {
    throw formatError(`restore: version ${String(saved.version)} of a saved conversation isn't known here`);
  }
  if (saved.model !== model) {
    throw usageError(`restore: the conversation was held with ${String(saved.model)}; this model is ${model}`);
  }
  return saved;
}
