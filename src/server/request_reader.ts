import type { Worker } from 'node:worker_threads';
import { withAbort } from '../base/errors.js';
import type { FormWait, PromptSource, ServingModel } from '../index.js';
import { ApiError, badRequest } from './api_error.js';
import { TurnsByClient } from './http/turns_by_client.js';
import { type CallKind, type Calls, readCall } from './requests/read_call.js';
import { startThread } from './threads.js';

/** Bodies up to this size are read at once, in a few milliseconds. */
export const SHORT_BODY = 4096;

/**
 * Larger ones are read in threads of their own, one for those up to each size: a megabyte takes up to a second, for which neither
 * what is being generated nor a shorter request waits. The rest bounds what refused ones take of the machine's time.
 */
const THREADS = [
  { upTo: 65_536, rest: 10, restMs: 0 },
  { upTo: Infinity, rest: 20, restMs: 250 },
];
const MAX_WAITING = 256;

/** Forms that nobody has seen, which run in a thread of their own: as many waiting, and as long rests. */
const FORMS = { maxWaiting: MAX_WAITING, rest: 10, maxRestMs: 100_000, what: 'forms of answers' };

interface Lane {
  readonly upTo: number;
  readonly turns: TurnsByClient;
  readonly thread: RequestThread;
}

export class RequestReader {
  readonly #lanes: readonly Lane[];
  readonly #forms = new TurnsByClient(FORMS);

  /** @param maxMs time to read one request */
  constructor(
    private readonly model: ServingModel,
    maxMs: number,
  ) {
    const source = (): PromptSource => model.promptSource;
    this.#lanes = THREADS.map(({ upTo, rest, restMs }) => ({
      upTo,
      turns: new TurnsByClient({ maxWaiting: MAX_WAITING, rest, restMs, what: 'large requests' }),
      thread: new RequestThread(source, maxMs),
    }));
  }

  /** Requests that wait for a thread. */
  get waiting(): number {
    return this.#lanes.reduce((sum, { turns }) => sum + turns.waiting, this.#forms.waiting);
  }

  formWait(client: string, signal: AbortSignal): FormWait {
    return { signal, turn: (work) => this.#forms.run(client, signal, work) };
  }

  /**
   * The call that a body asks for.
   * @param client whose it is: clients get a thread in turn
   * @throws ApiError 400, or 429 where too many wait; the signal's reason
   */
  async read<Kind extends CallKind>(
    kind: Kind,
    body: Uint8Array<ArrayBuffer>,
    client: string,
    signal: AbortSignal,
  ): Promise<Calls[Kind]> {
    if (body.length <= SHORT_BODY) return readCall(kind, body, this.model.info.contextLength);
    const { turns, thread } = this.#lanes.find(({ upTo }) => body.length <= upTo)!;
    await thread.start();
    return turns.run(client, signal, () => thread.read({ body, kind }));
  }

  async close(): Promise<void> {
    await Promise.all(this.#lanes.map(({ thread }) => thread.close()));
  }
}

export interface ThreadRequest {
  readonly body: Uint8Array;
  readonly kind: CallKind;
}
export type ThreadReply =
  | { readonly call: Calls[CallKind] }
  | { readonly refused: Pick<ApiError, 'status' | 'message' | 'details'> };

/** A thread that reads requests: parses, checks and tokenizes them, one at a time. */
export class RequestThread {
  #worker: Promise<Worker> | undefined;
  #closed = false;

  constructor(
    private readonly source: () => PromptSource,
    private readonly maxMs: number,
  ) {}

  /**
   * The call that a body asks for, with prompts as token ids. The body's bytes go with it.
   * @throws ApiError 400 for what is wrong with it, and where it takes longer than `maxMs`; 500 where the thread breaks
   */
  async read<Kind extends CallKind>(
    request: ThreadRequest & { readonly body: Uint8Array<ArrayBuffer>; readonly kind: Kind },
  ): Promise<Calls[Kind]> {
    const worker = await this.start();
    const late = (): ApiError =>
      badRequest(`reading this request takes longer than ${this.maxMs / 1000} s; send less text`);
    let reply: ThreadReply;
    try {
      worker.postMessage(request, [request.body.buffer]);
      reply = await withAbort(nextMessage<ThreadReply>(worker), AbortSignal.timeout(this.maxMs), late);
    } catch (error) {
      // What it is busy with doesn't end by itself.
      this.#worker = undefined;
      await worker.terminate();
      // Whoever ended it waits for the next one, and their rest counts that.
      if (!this.#closed) await this.start().catch(() => {});
      throw error;
    }
    if ('call' in reply) return reply.call as Calls[Kind];
    const { status, message, details } = reply.refused;
    throw new ApiError(status, message, details);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const worker = await this.#worker?.catch(() => undefined);
    await worker?.terminate();
  }

  /** The thread, which is started where it doesn't run. @throws ApiError 500 where that fails */
  start(): Promise<Worker> {
    if (!this.#worker) {
      const started = startWorker(this.source());
      started.catch(() => {
        if (this.#worker === started) this.#worker = undefined;
      });
      this.#worker = started;
    }
    return this.#worker;
  }
}

async function startWorker(source: PromptSource): Promise<Worker> {
  const worker = startThread('node_request_worker', 'splitkv requests', source);
  // Between two requests there is nobody to tell: the next one finds it gone.
  worker.on('error', () => {});
  await nextMessage<'ready'>(worker);
  // It ends with the process.
  worker.unref();
  return worker;
}

/** What the thread says next. @throws ApiError 500 where it ends instead */
function nextMessage<T>(worker: Worker): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const settle = (end: () => void): void => {
      worker.off('message', answered).off('messageerror', broke).off('error', broke).off('exit', ended);
      end();
    };
    const answered = (message: T): void => settle(() => resolve(message));
    const broke = (cause: unknown): void =>
      settle(() => reject(new ApiError(500, 'this request could not be read', { cause })));
    const ended = (code: number): void => broke(new Error(`the thread that reads requests ended with code ${code}`));
    worker.on('message', answered).on('messageerror', broke).on('error', broke).on('exit', ended);
    if (worker.threadId < 0) ended(0);
  });
}
