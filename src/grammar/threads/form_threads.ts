/**
 * Room: forms away from the thread that generates and answers. FormThreads (here) has two threads that make forms ready and say what may
 * come next in answers, and ends those that take too long; serve_forms.ts runs in them. Read form_thread.ts next.
 */

import { isNode } from '../../base/platform.js';
import { SplitkvError, usageError, withAbort } from '../../base/errors.js';
import { Kept } from '../../base/kept.js';
import type { AnswerFrame } from '../answer_frame.js';
import {
  FormPlace,
  nameOf,
  type NextTokens,
  type PackedVocabulary,
  type ReadyForm,
  unpacked,
  type Vocabulary,
} from '../masks.js';
import { Matcher, type State } from '../matcher.js';
import type { Network } from '../network.js';
import type { TextForm } from '../text_form.js';
import { startFile, startText } from './form_script.js';
import { type FormPort, FormThread, lostThread, type PortEvents, type StartPort, ThreadLost } from './form_thread.js';
import type { FormTold } from './serve_forms.js';

/** How a form that has to be made ready waits. */
export interface FormWait {
  /** Ends the waiting: the form may still be made ready. */
  readonly signal?: AbortSignal | undefined;
  /** Does the work when its turn comes. */
  readonly turn?: ((work: () => Promise<void>) => Promise<void>) | undefined;
}

/** Of forms that are known, and of each what is known of its states. */
const KNOWN_BYTES = 2 ** 28;
const MATCHER_UNITS = 2 ** 19;
/** An entry's other parts. */
const ENTRY_BYTES = 512;
/** To make a form ready. */
const FORM_SECONDS = 10;
/** For what may follow in an answer, whose form may have to be made ready again. Only what isn't usual takes as long. */
const NEXT_SECONDS = 3 * FORM_SECONDS;
/** Threads that an answer may lose. */
const MAX_LOST = 3;

/** Forms over a vocabulary. A new one is tried in a thread where no answer waits, and only then comes to theirs. */
export class FormThreads {
  readonly #known = new Kept<{ readonly form: Form } | { readonly refused: SplitkvError }>(KNOWN_BYTES);
  /** Where answers are. */
  #home: FormThread;
  /** Where forms are tried. */
  #spare: FormThread;
  #isTrying = false;
  #last: Promise<unknown> = Promise.resolve();
  #answers = 0;

  /** @param start default: threads where there are some, otherwise none */
  constructor(
    private readonly vocabulary: () => Promise<PackedVocabulary>,
    start = startPort(),
  ) {
    [this.#home, this.#spare] = [new FormThread(vocabulary, start), new FormThread(vocabulary, start)];
  }

  /**
   * A form that answers can be held to.
   * @throws SplitkvError `usage` and `unsupported` as `Constraints.compile`, and for what takes too long or too much memory; `aborted`
   */
  async compile(options: TextForm, frame: AnswerFrame | undefined, { signal, turn }: FormWait = {}): Promise<Form> {
    const name = nameOf(options, frame);
    if (!this.#known.get(name)) {
      // Whoever ended a thread has waited for the next one: it is begun outside of the turn only for the first.
      await this.#forTrials().open();
      const work = (): Promise<void> => this.#inTurn(() => this.#tryOut(name), signal);
      await withAbort(turn ? turn(work) : work(), signal, 'a text of a given form');
    }
    const known = this.#known.get(name)!;
    if ('refused' in known) throw known.refused;
    return known.form;
  }

  /** For a new answer of a form: its number, and the thread where it is. */
  place(form: string): [answer: number, thread: FormThread] {
    const isFree = this.#home.live.size === 0 && !this.#home.forms.has(form);
    // Where it was tried just now it is at hand. Where one is tried nobody else's answer should be.
    if (isFree && !this.#isTrying && this.#spare.forms.has(form)) this.#swap();
    const answer = this.#answers++;
    this.#home.live.add(answer);
    return [answer, this.#home];
  }

  dispose(): void {
    const closed = usageError('the model was disposed of');
    this.#home.end(closed, closed);
    this.#spare.end(closed, closed);
  }

  /** A page that asks for one text after the other has one thread. */
  #forTrials(): FormThread {
    if (this.#home.live.size === 0 && this.#home.isOpen && !this.#spare.isOpen) this.#swap();
    return this.#spare;
  }

  #swap(): void {
    [this.#home, this.#spare] = [this.#spare, this.#home];
  }

  /** One after the other. */
  #inTurn(work: () => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    const done = this.#last.then(() => (signal?.aborted ? undefined : work()));
    this.#last = done.catch(() => {});
    return done;
  }

  async #tryOut(name: string): Promise<void> {
    if (this.#known.get(name)) return;
    const thread = this.#forTrials();
    this.#isTrying = true;
    const bytes = ENTRY_BYTES + 2 * name.length;
    try {
      const { next, network } = await again(() => thread.ask(() => ({ form: name }), FORM_SECONDS));
      const form = new Form(this, name, next!, network!, unpacked(await this.vocabulary()));
      this.#known.set(name, { form }, bytes + 8 * MATCHER_UNITS);
    } catch (error) {
      if (!(error instanceof SplitkvError && (error.code === 'usage' || error.code === 'unsupported'))) throw error;
      this.#known.set(name, { refused: error }, bytes);
      await thread.open().catch(() => {});
      throw error;
    } finally {
      this.#isTrying = false;
    }
  }
}

export class Form implements ReadyForm {
  readonly matcher: Matcher;

  constructor(
    private readonly threads: FormThreads,
    readonly name: string,
    readonly first: NextTokens,
    network: Network,
    readonly vocabulary: Vocabulary,
  ) {
    this.matcher = new Matcher(network, MATCHER_UNITS);
    this.matcher.start.told = first;
  }

  /** For one answer. */
  start(): FormAnswer {
    return new FormAnswer(this.threads, this);
  }
}

/** What may follow the tokens of one answer so far. What was asked once for a form is known. */
export class FormAnswer extends FormPlace<Form> {
  readonly #number: number;
  readonly #thread: FormThread;
  #tokens: number[] = [];
  /** Of them, those that the thread has. */
  #sent = 0;
  #anew = true;
  #epoch = -1;

  constructor(threads: FormThreads, form: Form) {
    super(form);
    [this.#number, this.#thread] = threads.place(form.name);
  }

  override reset(): void {
    super.reset();
    this.#tokens = [];
    this.#anew = true;
  }

  override accept(token: number): void {
    super.accept(token);
    this.#tokens.push(token);
  }

  /** @throws SplitkvError `unsupported` where the model has no token that the text could go on with; `usage` where it takes too long */
  next(): NextTokens | undefined | Promise<NextTokens | undefined> {
    const { state } = this;
    if (!state) return undefined;
    return state.told ? this.own(state.told) : this.#ask(state).then((next) => this.own(next));
  }

  async #ask(state: State): Promise<NextTokens | undefined> {
    const { next } = await again(() =>
      this.#thread.ask(() => {
        // Another thread knows nothing of it.
        if (this.#epoch !== this.#thread.epoch) this.#anew = true;
        const [anew, from] = [this.#anew, this.#anew ? 0 : this.#sent];
        this.#anew = false;
        this.#sent = this.#tokens.length;
        this.#epoch = this.#thread.epoch;
        return { form: this.form.name, answer: this.#number, anew, tokens: this.#tokens.slice(from) };
      }, NEXT_SECONDS),
    );
    state.told = next;
    this.form.matcher.keep(next?.allowed.length ?? 0);
    return next;
  }

  dispose(): void {
    this.#thread.drop(this.#number);
  }
}

/** What a thread gives, which may be lost meanwhile by another's fault. */
async function again<T>(ask: () => Promise<T>): Promise<T> {
  for (let lost = 0; ; lost++) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ThreadLost) || lost === MAX_LOST) throw error;
    }
  }
}

/** Threads where there are some. Where a page's policy forbids workers, or there is no file for one, forms are made ready where they are asked for. */
export function startPort(): StartPort {
  const ways = !isNode() ? [startFile, startText].flatMap((start) => (start ? [inPage(start)] : [])) : [inNode];
  return async (events) => {
    // What didn't work once doesn't later.
    for (let way = ways[0]; way; way = ways[0]) {
      try {
        return await way(events);
      } catch {
        ways.shift();
      }
    }
    return startHere(events);
  };
}

const inNode: StartPort = async (events) => (await import('./node_form_port.js')).startNodePort(events);

const inPage =
  (start: () => Worker | Promise<Worker>): StartPort =>
  async (events) => {
    const worker = await start();
    let settled: ((error?: Error) => void) | undefined;
    const ready = new Promise<void>((resolve, reject) => {
      settled = (error) => (error ? reject(error) : resolve());
    });
    // It says something as soon as its script runs; one that isn't found, or that the page's policy forbids, has no message.
    worker.onmessage = ({ data }) => {
      if (data !== 'ready') return events.told(data as FormTold);
      settled?.();
      settled = undefined;
    };
    worker.onerror = (event) => {
      event.preventDefault?.();
      const why = (event as Partial<ErrorEvent>).message || 'its script could not be loaded';
      if (settled) settled(new Error(why));
      else events.ended(lostThread(why));
    };
    worker.onmessageerror = () => events.ended(lostThread('a message of it could not be read'));
    try {
      await ready;
    } catch (error) {
      worker.terminate();
      throw error;
    }
    return { post: (ask) => worker.postMessage(ask), hold: () => {}, end: () => worker.terminate() };
  };

export async function startHere(events: PortEvents): Promise<FormPort> {
  const { FormServer } = await import('./serve_forms.js');
  const server = new FormServer();
  return {
    post: (ask) => queueMicrotask(() => events.told(server.tell(ask))),
    hold: () => {},
    end: () => {},
  };
}
