/**
 * Room: APIs over HTTP on a serving model: routes, keys, limits, and an end that tells its clients. `http` has
 * connections and bodies, `requests` what they mean. docs/serving.md lists what it promises. Read routes.ts next.
 */

import { createHash, randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { EmbedResult, ServingInfo, ServingModel } from '../index.js';
import { IGNORED_HEADER } from './http/access.js';
import {
  answerRequest,
  type AnswerTimes,
  type AnswerWriter,
  type MediaCall,
  stopped,
  withMediaRead,
} from './requests/answer_request.js';
import { ApiError, badRequest, later, toApiError } from './api_error.js';
import { chatShape, ChoiceWriter, textShape } from './requests/choice_writer.js';
import type { CompletionCall, IgnoredField } from './requests/fields.js';
import { withOneSystem } from './requests/chat_request.js';
import type { NativeCall } from './llama_cpp/native_request.js';
import { NativeWriter, propsOf, slotsOf } from './llama_cpp/native_writer.js';
import { MessageWriter } from './messages/message_writer.js';
import { type ListedModel, shownModel } from './model_list.js';
import type { OllamaCall } from './ollama/ollama_request.js';
import { OllamaWriter, ollamaEmbeddings } from './ollama/ollama_writer.js';
import { answerLines, pullLines, type PullModel } from './ollama/pull.js';
import type { ResponseCall } from './responses/response_request.js';
import { itemList, ResponseStore } from './responses/response_store.js';
import { ResponseWriter } from './responses/response_writer.js';
import { tried } from '../base/errors.js';
import { defined } from '../base/options.js';
import { VERSION } from '../base/version.js';
import { embeddingAnswer, rerankAnswer } from './requests/text_request.js';
import type { CallKind, Calls } from './requests/read_call.js';
import { addTo, type Exchange } from './http/exchange.js';
import { type FrontOptions, HttpFront } from './front.js';
import { RequestReader, SHORT_BODY } from './request_reader.js';
import type { Route } from './routes.js';
import { modelMetrics, type OwnMetrics } from './server_metrics.js';

export interface ServerOptions extends FrontOptions {
  /** What clients call the model; default: its folder's or file's name. */
  readonly modelName?: string;
  /** Refuse fields that nobody here knows; default: ignore them, and name them in a header. */
  readonly strict?: boolean;
  /** Answers that may wait for a slot; beyond them clients get 429. Default 128. */
  readonly maxQueue?: number;
  /** Answers that one client may have under way: a key, or an address where no keys are needed; default: half of the places. */
  readonly maxPerClient?: number;
  /** Time to read, check and tokenize a request once it is there; default 10 s. */
  readonly readMs?: number;
  /** Downloads a model of the Hub, for Ollama's /api/pull; default: it is refused. */
  readonly pull?: PullModel;
  /** Part of responses' ids, by which a gateway finds who keeps them. */
  readonly place?: string;
}

const DEFAULTS = { strict: false, maxQueue: 128, readMs: 10_000 };
/** What asks for answers, or for vectors, by its route. */
const KINDS = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'text',
  '/v1/responses': 'responses',
  '/v1/messages': 'messages',
  '/api/chat': 'ollamaChat',
  '/api/generate': 'ollamaText',
  '/completion': 'native',
  '/infill': 'infill',
} as const;
const EMBEDDERS = {
  '/v1/embeddings': 'embeddings',
  '/api/embed': 'ollamaEmbed',
  '/api/embeddings': 'ollamaEmbed',
  '/embedding': 'nativeEmbedding',
} as const;
type AnsweringKind = (typeof KINDS)[keyof typeof KINDS];
const VECTORS: readonly CallKind[] = [...Object.values(EMBEDDERS), 'rerank'];
const GENERATING: readonly CallKind[] = [...Object.values(KINDS), ...Object.values(EMBEDDERS)];
const has = <Rows extends object>(rows: Rows, name: PropertyKey): name is keyof Rows => Object.hasOwn(rows, name);
/** Need a template, and what they are told without one. */
const CHATS: readonly CallKind[] = [
  'chat',
  'responses',
  'messages',
  'countTokens',
  'countChat',
  'countInput',
  'ollamaChat',
  'template',
];
/** Bytes of texts of responses that are kept. */
const STORED_BYTES = 2 ** 26;
/** Ignored fields that are named. */
const MAX_NAMES = 16;
/** The OpenAI API over HTTP, for one model. */
export class ApiServer extends HttpFront {
  readonly #options: ServerOptions & typeof DEFAULTS;
  /** Answers under way by client. */
  readonly #taken = new Map<string, number>();
  /** What it keeps for clients. */
  readonly responses = new ResponseStore(STORED_BYTES);
  #model: ServingModel | undefined;
  #reader: RequestReader | undefined;

  /** Until a model is opened, requests get 503. */
  constructor(given: ServerOptions = {}) {
    super(given);
    this.#options = { ...DEFAULTS, ...given };
  }

  /** Answers with this model from now on. */
  open(model: ServingModel): void {
    this.#model = model;
    this.#reader = new RequestReader(model, this.#options.readMs);
  }

  get modelName(): string {
    return this.#options.modelName ?? this.#model?.info.name ?? '';
  }

  /**
   * OpenAI's `system_fingerprint`: of equal ones, a request with the same seed gets the same text, bit for bit, for the same model
   * files. What only says how the work is shared (plan, ranks, slots, micro-batches) takes no part.
   */
  get fingerprint(): string {
    const { name, architecture, parameters, shape, weights, kv, adapter }: Partial<ServingInfo> =
      this.#model?.info ?? {};
    const parts = [VERSION, name, architecture, parameters, shape, weights, kv, adapter];
    return `b${VERSION}-${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12)}`;
  }

  /** Answers that may run and wait. */
  get places(): number {
    return (this.#model?.info.slots ?? 0) + this.#options.maxQueue;
  }

  /** The model stays open. */
  override async close(graceMs = 0): Promise<void> {
    await super.close(graceMs);
    await this.#reader?.close();
  }

  protected async answer(exchange: Exchange, route: Route): Promise<void> {
    const model = this.#openModel();
    const { name } = route;
    if (has(KINDS, name)) return this.#complete(exchange, model, KINDS[name]);
    if (has(EMBEDDERS, name)) return this.#embed(exchange, model, name);
    if (name === '/v1/rerank') return this.#rerank(exchange, model);
    if (route.id !== undefined) return this.#storedResponse(exchange, route);
    const told = await this.#tell(exchange, model, name);
    if (told) exchange.sendJson(200, told);
  }

  /** What is answered without generating anything. */
  async #tell(exchange: Exchange, model: ServingModel, name: Route['name']): Promise<object | undefined> {
    const { contextLength } = model.info;
    switch (name) {
      case '/tokenize': {
        const { prompt, options, withPieces } = await this.#read(exchange, model, 'tokenize');
        const ids = model.tokenize(prompt, options);
        const tokens = withPieces ? ids.map((id) => ({ id, piece: pieceOf(model.tokenBytes(id)) })) : ids;
        return { count: tokens.length, max_model_len: contextLength, tokens };
      }
      case '/detokenize': {
        const { tokens, text = model.detokenize(tokens) } = await this.#read(exchange, model, 'detokenize');
        // vLLM's name and llama.cpp's.
        return { prompt: text, content: text };
      }
      case '/apply-template': {
        const { prompt, options } = await this.#read(exchange, model, 'template');
        return { prompt: model.chatText(prompt, options) };
      }
      case '/v1/messages/count_tokens': {
        const { prompt, options } = await this.#read(exchange, model, 'countTokens');
        const call = { prompts: [prompt], promptField: 'messages', options } as const;
        return { input_tokens: await this.#count(exchange, model, call) };
      }
      case '/v1/chat/completions/input_tokens': {
        const call = await this.#read(exchange, model, 'countChat');
        return { input_tokens: await this.#count(exchange, model, call) };
      }
      case '/v1/responses/input_tokens': {
        const call = this.#goingOn(exchange, await this.#read(exchange, model, 'countInput'));
        return { object: 'response.input_tokens', input_tokens: await this.#count(exchange, model, call) };
      }
      case '/props':
        return propsOf(model, this.modelName);
      case '/slots':
        return slotsOf(model);
      case '/api/show': {
        const { model: asked } = await this.#read(exchange, model, 'named');
        return shownModel({ ...this.listed(this.checkModel(asked)), model });
      }
      case '/api/pull':
        return this.#pull(exchange, model);
      default:
        throw new ApiError(404, `there is no ${name} here`);
    }
  }

  /** Tokens of a prompt. */
  async #count(exchange: Exchange, model: ServingModel, call: MediaCall): Promise<number> {
    const [prompt] = await withMediaRead(exchange, model, call);
    return model.tokenize(prompt!, call.options).length;
  }

  /** Downloads a model of the Hub, which is told in lines. The server goes on with the one that it has. */
  async #pull(exchange: Exchange, model: ServingModel): Promise<object | undefined> {
    const { model: wanted, stream } = await this.#read(exchange, model, 'named');
    const { pull } = this.#options;
    const isHere = this.modelNames().includes(wanted);
    if (!isHere && !pull) throw badRequest('this server pulls no models: use `splitkv pull`', 'model');
    const lines = pullLines(isHere ? undefined : (onProgress) => pull!(wanted, onProgress, exchange.signal));
    return answerLines(exchange, lines, stream);
  }

  protected status(): string {
    if (!this.#model) return 'loading';
    if (this.#model.failure !== undefined) return 'failed';
    return this.#model.metrics.recovering ? 'recovering' : 'ok';
  }

  protected override listed(id: string): ListedModel {
    return { ...super.listed(id), model: this.#model };
  }

  protected modelNames(): readonly string[] {
    const { list } = this.#openModel().adapters;
    return [this.modelName, ...list.map(({ name }) => this.#nameWith(name))];
  }

  /** What clients call the model with an adapter. */
  #nameWith(adapter: string): string {
    return `${this.modelName}:${adapter}`;
  }

  /** Of the model that a call names; undefined: of the model alone. */
  #adapterOf({ model: asked }: { readonly model?: string | undefined }): string | undefined {
    return this.#model?.adapters.list.find(({ name }) => this.#nameWith(name) === asked)?.name;
  }

  protected ownMetrics(): OwnMetrics {
    const model = this.#model;
    return { unread: this.#reader?.waiting ?? 0, ...(model && { info: model.info, metrics: modelMetrics(model) }) };
  }

  /** @throws ApiError 503 while there is none */
  #openModel(): ServingModel {
    this.checkOpen();
    if (!this.#model) throw later(503, 'loading', 2, 'the model is still loading');
    return this.#model;
  }

  async #embed(exchange: Exchange, model: ServingModel, route: keyof typeof EMBEDDERS): Promise<void> {
    const { prompts, promptField, options, base64 } = await this.#read(exchange, model, EMBEDDERS[route]);
    const asked = performance.now();
    await this.#compute(exchange, model, prompts.length, promptField, async (own) => {
      const result = await model.embed(prompts, { ...options, ...own });
      return this.#vectors(route, base64, result, { began: exchange.started, asked });
    });
  }

  async #rerank(exchange: Exchange, model: ServingModel): Promise<void> {
    const call = await this.#read(exchange, model, 'rerank');
    const { query, documents, options } = call;
    await this.#compute(exchange, model, documents.length, 'documents', async (own) =>
      rerankAnswer(this.modelName, call, await model.rerank(query, documents, { ...options, ...own })),
    );
  }

  /** Answers with what is computed of so many texts. @param param the field that has them */
  async #compute(
    exchange: Exchange,
    model: ServingModel,
    texts: number,
    param: string,
    body: (own: Pick<Exchange, 'client' | 'signal'>) => Promise<object>,
  ): Promise<void> {
    this.#openModel();
    // So many are computed side by side; the others of the request wait for them.
    const wanted = Math.min(texts, model.info.slots, this.#perClient);
    const { client, signal } = exchange;
    await this.#inPlaces(exchange, model, wanted, param, async () => {
      try {
        exchange.sendJson(200, await body({ client, signal }));
      } catch (error) {
        throw signal.aborted ? stopped() : toApiError(error, param);
      }
    });
  }

  /** Vectors as the route's API tells them. */
  #vectors(
    route: keyof typeof EMBEDDERS,
    base64: boolean,
    result: EmbedResult,
    times: Pick<AnswerTimes, 'began' | 'asked'>,
  ): object {
    if (route === '/v1/embeddings') return embeddingAnswer(this.modelName, base64, result);
    const { embeddings, prompt_tokens } = result;
    if (route === '/embedding') return embeddings.map((vector, index) => ({ index, embedding: [[...vector]] }));
    return ollamaEmbeddings(route === '/api/embeddings', this.modelName, embeddings, prompt_tokens, times);
  }

  /** Does what takes so many places of the queue, of which a client has no more than its share. @throws ApiError 429, 400 */
  async #inPlaces(
    { client }: Exchange,
    model: ServingModel,
    wanted: number,
    param: string,
    work: () => Promise<void>,
  ): Promise<void> {
    this.#checkQueue(model, wanted, param);
    const most = this.#perClient;
    if (wanted > most) {
      throw badRequest(`${wanted} answers in one request: this server takes at most ${most} of one client`, param);
    }
    const taken = this.#taken.get(client) ?? 0;
    if (taken + wanted > most) {
      const message = `you have ${taken} answers under way, and this server takes at most ${most} of one client; try again when some have ended`;
      throw later(429, 'client_queue_full', 1, message);
    }
    addTo(this.#taken, client, wanted);
    try {
      await work();
    } finally {
      addTo(this.#taken, client, -wanted);
    }
  }

  /** A response that this client was told before, or what was asked for it. */
  #storedResponse(exchange: Exchange, { name, id = '' }: Route): void {
    const { request, client } = exchange;
    const { body, items } = this.responses.get(client, id);
    if (request.method === 'DELETE') {
      this.responses.delete(client, id);
      return exchange.sendJson(200, { id, object: 'response', deleted: true });
    }
    exchange.sendJson(200, name === '/v1/responses/{id}' ? body : itemList(items));
  }

  async #complete(exchange: Exchange, model: ServingModel, kind: AnsweringKind): Promise<void> {
    const asked = await this.#read(exchange, model, kind);
    // It may have begun to end while the body came.
    this.#openModel();
    this.access.checkPriority(exchange.request, asked.options.priority);
    const own = 'response' in asked ? this.#goingOn(exchange, asked) : asked;
    const call = { ...own, options: { ...own.options, ...defined({ adapter: this.#adapterOf(own) }) } };
    const { prompts, promptField, options } = call;
    if (prompts.length === 0) return exchange.sendJson(200, this.#ollamaWriter(kind, call).loaded());
    const wanted = prompts.length * (options.n ?? 1);
    const param = prompts.length > this.places ? promptField : 'n';
    await this.#inPlaces(exchange, model, wanted, param, () =>
      answerRequest(
        exchange,
        model,
        call,
        this.#writerOf(exchange, model, kind, call),
        this.#reader!.formWait(exchange.client, exchange.signal),
        (error) => this.#options.onError?.(error, exchange),
      ),
    );
  }

  /** With what was said before it. @throws ApiError 400 for a previous response that isn't there */
  #goingOn({ client }: Exchange, call: ResponseCall): ResponseCall {
    const { previous, instructions, messages } = call.response;
    if (previous === undefined) return call;
    const before = this.responses.get(client, previous, 'previous_response_id').messages;
    const all = [...before, ...messages];
    const told = instructions === null ? all : [{ role: 'system' as const, content: instructions }, ...all];
    return { ...call, prompts: [{ messages: withOneSystem(told) }], response: { ...call.response, messages: all } };
  }

  #ollamaWriter(kind: AnsweringKind, call: CompletionCall): OllamaWriter {
    const { named, options } = call as OllamaCall;
    return new OllamaWriter(named ?? this.modelName, kind === 'ollamaChat', options.logprobs !== undefined);
  }

  #writerOf(
    { client }: Exchange,
    model: ServingModel,
    kind: AnsweringKind,
    call: CompletionCall | ResponseCall,
  ): AnswerWriter {
    const { adapter } = call.options;
    const modelName = adapter === undefined ? this.modelName : this.#nameWith(adapter);
    if (kind === 'messages') return new MessageWriter(modelName);
    if ('named' in call) return this.#ollamaWriter(kind, call);
    const textOf = (ids: readonly number[]): string => model.detokenize(ids);
    if ('told' in call) return new NativeWriter(call as NativeCall, modelName, textOf);
    if ('response' in call) {
      const { store, items, messages } = call.response;
      return new ResponseWriter(
        call,
        modelName,
        (body, answer) => {
          if (store) this.responses.add(client, { body, items, messages: [...messages, answer] });
        },
        this.#options.place,
      );
    }
    const shape = kind === 'chat' ? chatShape : textShape;
    const head = {
      id: `${shape.idPrefix}${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      model: modelName,
      system_fingerprint: this.fingerprint,
    };
    return new ChoiceWriter(call, shape, head, textOf);
  }

  async #read<Kind extends CallKind>(exchange: Exchange, model: ServingModel, kind: Kind): Promise<Calls[Kind]> {
    const { response, signal, client } = exchange;
    try {
      return await this.withBody(exchange, async (body) => {
        if (CHATS.includes(kind) && !model.info.hasChatTemplate) {
          const field = kind === 'responses' || kind === 'countInput' ? 'input' : 'messages';
          throw badRequest('this model has no chat template; send a prompt to /v1/completions', field);
        }
        // No work for what there is no place for.
        if (GENERATING.includes(kind) && body.length > SHORT_BODY) this.#checkQueue(model, 1);
        const call = await this.#reader!.read(kind, body, client, signal);
        this.#tellIgnored(response, call.ignored);
        // What is pulled need not be here.
        if (kind !== 'named') this.checkModel(call.model);
        if (VECTORS.includes(kind) && this.#adapterOf(call) !== undefined)
          throw badRequest('vectors and scores are of the model alone: name no adapter', 'model');
        return call;
      });
    } catch (error) {
      throw signal.aborted ? stopped() : error;
    }
  }

  /** @throws ApiError 400 where the server is strict */
  #tellIgnored(response: ServerResponse, [first, ...others]: readonly IgnoredField[]): void {
    if (!first) return;
    if (this.#options.strict) throw badRequest(first.why, first.name);
    const names = [first, ...others].slice(0, MAX_NAMES).map(({ name }) => headerText(name));
    response.setHeader(IGNORED_HEADER, names.join(', '));
  }

  get #perClient(): number {
    return this.#options.maxPerClient ?? Math.max(1, Math.floor(this.places / 2));
  }

  /** @throws ApiError 429 when the queue is full, 400 for more answers than it could ever take */
  #checkQueue(model: ServingModel, wanted: number, param?: string): void {
    const { slots } = model.info;
    const { places } = this;
    if (wanted > places) {
      throw badRequest(`${wanted} answers in one request: this server takes at most ${places} at once`, param);
    }
    const { unfinished } = model.metrics;
    if (unfinished + wanted <= places) return;
    const seconds = this.metrics.retryAfter(unfinished - slots + wanted, slots);
    const why = `the queue is full (${unfinished} answers under way); try again in ${seconds} s`;
    throw later(429, 'queue_full', seconds, why);
  }
}

/** A token's text, or its bytes where they are no text by themselves. */
const pieceOf = (bytes: Uint8Array): string | number[] =>
  tried(() => new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)) ?? [...bytes];

/** A name as a header may have it. */
const headerText = (name: string): string =>
  name.replace(/[^\w.[\]-]/gu, (letter) => encodeURIComponent(Buffer.from(letter).toString()));
