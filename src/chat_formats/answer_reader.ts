import { AnswerInput, type Steps } from './answer_input.js';
import type { ChatFormat } from './chat_format.js';
import { callId, type Tool, type ToolCallDelta } from './tools.js';

export interface ReadOptions {
  /** What is thought is told apart. */
  readonly thinking: boolean;
  /** The prompt has begun the thinking. */
  readonly open: boolean;
  /** Calls of these are looked for. */
  readonly tools?: readonly Tool[] | undefined;
  /** Several calls; false: the answer ends with the first. */
  readonly parallel?: boolean | undefined;
}

export interface AnswerDelta {
  readonly text: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCallDelta[];
}

/** Where readers put what they have read. */
export class AnswerOut {
  /** What comes now is thought. */
  thinking = false;
  #text = '';
  #reasoning = '';
  #calls: ToolCallDelta[] = [];
  #count = 0;

  constructor(
    readonly options: ReadOptions,
    private readonly shortIds: boolean,
  ) {}

  readonly text = (text: string): void => void (this.#text += text);
  readonly reasoning = (text: string): void => void (this.#reasoning += text);

  /** A call begins. */
  call(name: string): void {
    this.#calls.push({ index: this.#count++, id: callId(this.shortIds), name, arguments: '' });
  }

  /** More of the arguments of the call that began last. */
  readonly arguments = (text: string): void => {
    const index = this.#count - 1;
    const last = this.#calls.at(-1);
    if (last?.index === index && last.id === undefined) {
      this.#calls[this.#calls.length - 1] = { index, arguments: last.arguments + text };
    } else if (text !== '') this.#calls.push({ index, arguments: text });
  };

  get calls(): number {
    return this.#count;
  }

  /** There may be no more calls. */
  get full(): boolean {
    return this.options.parallel === false && this.#count > 0;
  }

  tool(name: string): Tool | undefined {
    return this.options.tools?.find(({ function: of }) => of.name === name);
  }

  drain(): AnswerDelta {
    const delta = { text: this.#text, reasoning: this.#reasoning, toolCalls: this.#calls };
    this.#text = this.#reasoning = '';
    this.#calls = [];
    return delta;
  }
}

/** Tells an answer's text, thoughts and calls apart as it comes. */
export class AnswerReader extends AnswerOut {
  readonly #input = new AnswerInput();
  readonly #steps: Steps;
  #done = false;

  constructor(format: ChatFormat, options: ReadOptions) {
    super(options, format.shortIds);
    this.#steps = format.read(this.#input, this);
  }

  /** Nothing of what follows belongs to the answer. */
  get done(): boolean {
    return this.#done;
  }

  push(text: string): AnswerDelta {
    this.#input.push(text);
    return this.#run();
  }

  /** What is left where no more comes. */
  finish(): AnswerDelta {
    this.#input.end();
    return this.#run();
  }

  #run(): AnswerDelta {
    this.#done ||= this.#steps.next().done === true;
    return this.drain();
  }
}
