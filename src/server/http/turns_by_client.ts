import { later } from '../api_error.js';

export interface TurnsOptions {
  /** Jobs that may wait, over all clients; one client's up to a quarter. */
  readonly maxWaiting: number;
  /** A client whose job was refused rests this many times as long as the job took, before its next one is begun. */
  readonly rest: number;
  /** And at least so long. */
  readonly restMs?: number;
  /** And no longer, default 10 s. */
  readonly maxRestMs?: number;
  /** What waits, for those who are told that it is too much. */
  readonly what: string;
}

type Job = () => Promise<unknown>;

interface Client {
  readonly waiting: Job[];
  /** On the clock of performance.now(). */
  restsUntil: number;
}

const MAX_REST_MS = 10_000;

/**
 * One job at a time, clients in turn. What is refused costs the server as much as what is answered, and a client that is refused at
 * once asks again at once: its rest bounds the share of the time that goes to it.
 */
export class TurnsByClient {
  /** In the order in which they get their turns. */
  readonly #clients = new Map<string, Client>();
  #waiting = 0;
  #running = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly options: TurnsOptions) {}

  get waiting(): number {
    return this.#waiting;
  }

  /**
   * What the job gives, when its turn came. A signal that fires before takes it out of the queue.
   * @throws what the job throws; ApiError 429 where too many wait, and the signal's reason
   */
  async run<T>(name: string, signal: AbortSignal, job: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    const { maxWaiting, what } = this.options;
    const client = this.#clients.get(name) ?? { waiting: [], restsUntil: 0 };
    if (this.#waiting >= maxWaiting || client.waiting.length >= maxWaiting / 4) {
      throw later(429, 'busy', 1, `${this.#waiting} ${what} wait; try again in a second`);
    }
    // Nobody waits longer in silence.
    const rest = client.restsUntil - performance.now();
    if (rest > MAX_REST_MS) {
      const seconds = Math.ceil(rest / 1000);
      const why = `${what} of yours were refused that took long; the next is looked at in ${seconds} s`;
      throw later(429, 'busy', seconds, why);
    }
    this.#clients.set(name, client);
    return new Promise<T>((resolve, reject) => {
      const drop = (): void => {
        const at = client.waiting.indexOf(entry);
        if (at < 0) return;
        client.waiting.splice(at, 1);
        this.#waiting--;
        reject(signal.reason as Error);
      };
      const entry: Job = () => {
        signal.removeEventListener('abort', drop);
        const result = job();
        result.then(resolve, reject);
        return result;
      };
      signal.addEventListener('abort', drop, { once: true });
      client.waiting.push(entry);
      this.#waiting++;
      this.#next();
    });
  }

  #next(): void {
    if (this.#running) return;
    clearTimeout(this.#timer);
    const now = performance.now();
    let soonest = Infinity;
    for (const [name, client] of this.#clients) {
      if (client.restsUntil > now) {
        if (client.waiting.length > 0) soonest = Math.min(soonest, client.restsUntil);
        continue;
      }
      const job = client.waiting.shift();
      if (!job) {
        this.#clients.delete(name);
        continue;
      }
      this.#waiting--;
      void this.#run(job, name, client);
      return;
    }
    if (soonest < Infinity) this.#timer = setTimeout(() => this.#next(), Math.max(1, soonest - now));
  }

  async #run(job: Job, name: string, client: Client): Promise<void> {
    this.#running = true;
    const started = performance.now();
    try {
      await job();
    } catch {
      // Its owner hears of it.
      const ended = performance.now();
      const { rest, restMs = 0, maxRestMs = MAX_REST_MS } = this.options;
      client.restsUntil = ended + Math.max(restMs, Math.min(maxRestMs, rest * (ended - started)));
    }
    this.#running = false;
    // Behind those that came meanwhile.
    this.#clients.delete(name);
    this.#clients.set(name, client);
    this.#next();
  }
}
