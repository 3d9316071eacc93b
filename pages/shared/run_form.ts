import { SplitkvError } from '../../src/base/errors.js';
import { element } from './elements.js';

/** A form of a page that runs something long: its button runs it, a second one stops it, and what goes wrong is told below. */
export class RunForm {
  readonly form = element('form', HTMLFormElement);
  readonly #run = element('run', HTMLButtonElement);
  readonly #stop = element('stop', HTMLButtonElement);
  readonly #status = element('status', HTMLParagraphElement);
  readonly #error = element('error', HTMLElement);
  readonly #errorText = element('error-text', HTMLParagraphElement);
  #running: AbortController | undefined;

  /** @param run resolves with what to say at the end */
  constructor(private readonly run: (signal: AbortSignal, say: (line: string) => void) => Promise<string>) {
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.start();
    });
    this.#stop.addEventListener('click', () => this.#running?.abort());
  }

  /** Runs it; what runs already ends first. */
  async start(): Promise<void> {
    this.#running?.abort();
    const own = new AbortController();
    this.#running = own;
    this.#error.hidden = true;
    this.#stop.disabled = false;
    const say = (line: string): void => {
      if (this.#running === own) this.#status.textContent = line;
    };
    say('Running…');
    let ending: string;
    try {
      ending = await this.run(own.signal, say);
    } catch (error) {
      const aborted = error instanceof SplitkvError && error.code === 'aborted';
      ending = aborted ? 'Stopped.' : "That didn't work.";
      if (!aborted && this.#running === own) {
        this.#errorText.textContent = error instanceof Error ? error.message : String(error);
        this.#error.hidden = false;
      }
    }
    if (this.#running !== own) return;
    say(ending);
    this.#running = undefined;
    if (document.activeElement === this.#stop) this.#run.focus();
    this.#stop.disabled = true;
  }

  /** The number in a field; undefined where it is empty. The browser has checked its range. */
  number(name: string): number | undefined {
    const { value } = this.form.elements.namedItem(name) as HTMLInputElement;
    return value === '' ? undefined : Number(value);
  }

  text(name: string): string {
    return (this.form.elements.namedItem(name) as HTMLInputElement).value;
  }
}
