import type { FormWait, PromptSource, ServingModel } from '../index.js';
import { type CallKind, type Calls, readCall } from './requests/read_call.js';
import { RequestThread } from './request_thread.js';
import { TurnsByClient } from './http/turns_by_client.js';

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

export interface ReaderOptions {
  /** Time to read one request. */
  readonly maxMs: number;
}

/** Forms that nobody has seen, which run in a thread of their own: as many waiting, and as long rests. */
const FORMS = { maxWaiting: MAX_WAITING, rest: 10, maxRestMs: 100_000, what: 'forms of answers' };

interface Lane {
  readonly upTo: number;
  readonly turns: TurnsByClient;
  readonly thread: RequestThread;
}

/** Reads the bodies of requests for a model. */
export class RequestReader {
  readonly #lanes: readonly Lane[];
  readonly #forms = new TurnsByClient(FORMS);

  constructor(
    private readonly model: ServingModel,
    { maxMs }: ReaderOptions,
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

  /** How a client's forms wait. */
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
