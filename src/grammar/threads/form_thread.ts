import { internalError, SplitkvError, usageError } from '../../base/errors.js';
import type { PackedVocabulary } from '../masks.js';
import type { FormAsk, FormTold, Told } from './serve_forms.js';

/** A thread, or what stands in for one. */
export interface FormPort {
  post(ask: FormAsk): void;
  /** Whether the process waits for it. */
  hold(held: boolean): void;
  end(): void;
}

export interface PortEvents {
  told(told: FormTold): void;
  /** It ended by itself. @param error what whoever it was working for is told */
  ended(error: SplitkvError): void;
}

/** @throws where there is no such thread */
export type StartPort = (events: PortEvents) => FormPort | Promise<FormPort>;

/** To make a vocabulary ready, which nobody asks for in particular. */
const OPEN_SECONDS = 120;

/** The thread ended while it worked for somebody else. */
export class ThreadLost extends SplitkvError {
  constructor() {
    super('internal', 'the thread that makes forms ready was lost again and again; ask again');
  }
}

export const lostThread = (why: string): SplitkvError =>
  internalError(`the thread that makes forms ready ended: ${why}; ask again`);

interface Waiting {
  readonly seconds: number;
  readonly resolve: (told: Told) => void;
  readonly reject: (error: unknown) => void;
}

/** A thread of forms, which begins when it is asked for something, and again after it was ended. */
export class FormThread {
  #port: Promise<FormPort> | undefined;
  #waiting: Waiting[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Another one after each end: what was told before isn't known any more. */
  epoch = 0;
  /** Forms that it made ready. */
  readonly forms = new Set<string>();
  /** Answers under way, each by its number. */
  readonly live = new Set<number>();

  constructor(
    private readonly vocabulary: () => Promise<PackedVocabulary>,
    private readonly start: StartPort,
  ) {}

  get isOpen(): boolean {
    return this.#port !== undefined;
  }

  /** Begins where it hasn't. @throws what keeps it from it */
  open(): Promise<FormPort> {
    return (this.#port ??= this.#open());
  }

  /**
   * What it says to a question. The question is made when the thread is there.
   * @throws SplitkvError what it says is wrong, `usage` where it takes too long, and ThreadLost
   */
  async ask(make: () => FormAsk, seconds: number): Promise<Told> {
    const port = await this.open();
    const ask = make();
    const told = await this.#send(port, ask, seconds);
    if ('form' in ask) this.forms.add(ask.form);
    return told;
  }

  /** An answer has ended. */
  drop(answer: number): void {
    this.live.delete(answer);
    const { epoch } = this;
    const tell = (port: FormPort): void => {
      if (epoch === this.epoch) this.#send(port, { drop: answer }, OPEN_SECONDS).catch(() => {});
    };
    this.#port?.then(tell, () => {});
  }

  /** What waits for it is told of the end. */
  end(first: unknown = new ThreadLost(), others: unknown = new ThreadLost()): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.epoch++;
    this.forms.clear();
    this.#port?.then(
      (port) => port.end(),
      () => {},
    );
    this.#port = undefined;
    for (const [at, { reject }] of this.#waiting.splice(0).entries()) reject(at === 0 ? first : others);
  }

  async #open(): Promise<FormPort> {
    const open = await this.vocabulary();
    const { epoch } = this;
    const isOf = (): boolean => epoch === this.epoch;
    try {
      const port = await this.start({
        told: (told) => isOf() && this.#told(told),
        ended: (error) => isOf() && this.end(error),
      });
      await this.#send(port, { open }, OPEN_SECONDS);
      return port;
    } catch (error) {
      if (isOf()) this.end(error);
      throw error;
    }
  }

  #send(port: FormPort, ask: FormAsk, seconds: number): Promise<Told> {
    const told = new Promise<Told>((resolve, reject) => {
      port.hold(true);
      this.#waiting.push({ seconds, resolve, reject });
      if (this.#waiting.length === 1) this.#watch();
      port.post(ask);
    });
    return told.finally(() => this.#waiting.length === 0 && port.hold(false));
  }

  /** The first that waits is what the thread works on. */
  #watch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const [first] = this.#waiting;
    if (!first) return;
    this.#timer = setTimeout(() => this.end(tooLong(first.seconds)), first.seconds * 1000);
  }

  #told(told: FormTold): void {
    const first = this.#waiting.shift();
    this.#watch();
    if (!first) return;
    if (!('wrong' in told)) return first.resolve(told);
    const { code, message } = told.wrong;
    first.reject(new SplitkvError(code, message));
  }
}

const tooLong = (seconds: number): SplitkvError =>
  usageError(
    `the form takes longer than ${seconds} s to be held to; make it smaller: fewer and shorter repetitions, alternatives and properties`,
  );
