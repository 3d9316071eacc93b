import { isObject } from '../../base/json.js';
import { VERSION } from '../../base/version.js';
import type { Completion, CompletionEvent, ServingModel, TokenChance } from '../../index.js';
import {
  type AnswerTimes,
  type AnswerWriter,
  progressOf,
  timingsOf,
  type WholeAnswer,
} from '../requests/answer_request.js';
import type { NativeCall } from './native_request.js';

const STOP_TYPES: Readonly<Record<WholeAnswer['finish'], string>> = {
  eos: 'eos',
  stop_token: 'eos',
  stop_string: 'word',
  max_tokens: 'limit',
  context_full: 'limit',
  aborted: 'none', // never told
};

const chanceOf = ({ id, text, bytes, logprob }: TokenChance): object => ({ id, token: text, bytes, logprob });

function chancesOf(logprobs: CompletionEvent['logprobs']): object {
  const all = logprobs.map((each) => ({ ...chanceOf(each), top_logprobs: each.top.map(chanceOf) }));
  return all.length === 0 ? {} : { completion_probabilities: all };
}

/** Of an answer what is at these places, by their names. */
const partsOf = (answer: object, places: readonly string[]): object =>
  Object.fromEntries(
    places.flatMap((place): (readonly [string, unknown])[] => {
      const found = place.split('/').reduce<unknown>((at, key) => (isObject(at) ? at[key] : undefined), answer);
      return found === undefined ? [] : [[place, found]];
    }),
  );

/** Writes answers as llama.cpp's /completion. */
export class NativeWriter implements AnswerWriter {
  /** Answers that have ended, of a stream. */
  readonly #ended = new Map<number, Pick<WholeAnswer, 'finish' | 'stop'>>();

  constructor(
    private readonly call: NativeCall,
    private readonly model: string,
    private readonly textOf: (ids: readonly number[]) => string,
  ) {}

  whole(answers: readonly WholeAnswer[], completion: Completion, times: AnswerTimes): object {
    const all = answers.map(({ text, tokens, logprobs = [], ...how }, index) => ({
      ...this.#end(index, text, how, completion, times),
      ...(this.call.tellsTokens && { tokens }),
      ...chancesOf(logprobs),
    }));
    const { isList, fields = [] } = this.call;
    const told = fields.length === 0 ? all : all.map((answer) => partsOf(answer, fields));
    return isList ? told : told[0]!;
  }

  chunks({ index, text, tokens = [], logprobs, progress, finish, stop }: CompletionEvent): object[] {
    if (finish) this.#ended.set(index, { finish, stop });
    if (text === '' && logprobs.length === 0 && !progress) return [];
    const told = { ...chancesOf(logprobs), ...(progress && progressOf(progress)) };
    return [{ index, content: text, tokens, id_slot: -1, stop: false, ...told }];
  }

  closing(completion: Completion, times: AnswerTimes): object[] {
    return [...this.#ended].map(([index, how]) => this.#end(index, '', how, completion, times));
  }

  #end(
    index: number,
    content: string,
    { finish, stop }: Pick<WholeAnswer, 'finish' | 'stop'>,
    completion: Completion,
    times: AnswerTimes,
  ): object {
    const { promptTokens, completionTokens, prompts } = completion;
    const { n = 1 } = this.call.options;
    const alone = prompts.length * n === 1;
    return {
      index,
      content,
      tokens: [],
      id_slot: -1,
      stop: true,
      model: this.model,
      // Of several answers only the sum is known.
      ...(alone && {
        tokens_predicted: completionTokens,
        tokens_evaluated: promptTokens,
        tokens_cached: promptTokens + Math.max(0, completionTokens - 1),
        timings: timingsOf(completion, times),
      }),
      generation_settings: this.call.told,
      prompt: this.textOf(prompts[Math.floor(index / n)]!),
      has_new_line: content.includes('\n'),
      truncated: finish === 'context_full',
      stop_type: STOP_TYPES[finish],
      stopping_word: stop ?? '',
    };
  }
}

/** The answer of GET /props. */
export const propsOf = ({ info, texts }: ServingModel, name: string): object => ({
  default_generation_settings: { id: 0, n_ctx: info.contextLength, is_processing: false, params: {} },
  total_slots: info.slots,
  model_alias: name,
  model_path: info.name,
  modalities: { vision: info.imagePlaceholder !== undefined, audio: info.soundPlaceholder !== undefined },
  chat_template: texts.template,
  bos_token: texts.bos,
  eos_token: texts.eos,
  build_info: `splitkv ${VERSION}`,
  is_sleeping: false,
});

/** The answer of GET /slots. */
export const slotsOf = ({ info, slots }: ServingModel): object[] =>
  slots.map((slot, id) => ({
    id,
    n_ctx: info.contextLength,
    speculative: false,
    is_processing: slot !== undefined,
    ...(slot && {
      n_prompt_tokens: slot.prompt,
      n_prompt_tokens_processed: slot.there,
      n_prompt_tokens_cache: slot.cached,
      next_token: [{ n_decoded: slot.generated }],
    }),
  }));
