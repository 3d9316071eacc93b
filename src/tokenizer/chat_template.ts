import { Template } from '@huggingface/jinja';
import { didYouMean, formatError, SplitkvError, usageError } from '../base/errors.js';
import { isObject } from '../base/json.js';
import { valueIn } from '../base/lists.js';
import type { ChatMessage } from '../chat_formats/template_messages.js';
import { renderTemplate } from './template_budget.js';

/** Letters of a template, the largest of which have 50,000; and blanks in a row, which the library looks at again and again. */
const [MAX_LETTERS, MAX_BLANKS] = [1 << 18, 1000];

export interface ChatTemplateOptions {
  /** End with what makes the model answer; default true. */
  addGenerationPrompt?: boolean;
  /** Tools the model may call, as JSON schemas. */
  tools?: readonly unknown[] | undefined;
  /** A template of a folder that has several; default: 'tool_use' with tools where there is one, otherwise 'default'. */
  template?: string;
  /** Further variables of the template, e.g. `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
}

/** The chat templates of a model folder: chat_template.jinja, or `chat_template` of tokenizer_config.json (one, or named ones). */
export class ChatTemplates {
  readonly #sources: ReadonlyMap<string, string>;
  readonly #parsed = new Map<string, Template>();
  readonly check = checkMessages;

  /** @param specials `bos_token` and the like, as the templates see them. */
  constructor(
    chatTemplate: unknown,
    file: string,
    private readonly specials: Readonly<Record<string, string>>,
  ) {
    this.#sources = readSources(chatTemplate, file);
  }

  /** The text of the template that tools are shown by, or of the only one; '' where there is none. */
  get source(): string {
    const [first = '', ...others] = this.#sources.values();
    return this.#sources.get('tool_use') ?? this.#sources.get('default') ?? (others.length === 0 ? first : '');
  }

  get available(): boolean {
    return this.#sources.size > 0;
  }

  /**
   * Throws `usage` where there is no template, where it refuses the messages, and where it takes more steps, or makes more of them, than
   * any conversation needs.
   */
  render(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    checkMessages(messages);
    const { addGenerationPrompt = true, tools } = options;
    const template = this.#template(this.#choose(options));
    try {
      const variables = {
        ...this.specials,
        messages,
        add_generation_prompt: addGenerationPrompt,
        ...(tools === undefined ? {} : { tools }),
        ...options.variables,
      };
      return renderTemplate(template, variables, messages.length);
    } catch (cause) {
      if (cause instanceof SplitkvError) throw cause;
      throw usageError(`the model's chat template refused these messages: ${(cause as Error).message}`);
    }
  }

  #choose({ template, tools }: ChatTemplateOptions): string {
    if (!this.available)
      throw usageError('this model has no chat template; give plain text (--raw) instead of messages');
    const names = [...this.#sources.keys()];
    const [first, ...others] = names;
    if (template !== undefined) {
      if (this.#sources.has(template)) return template;
      throw usageError(`no chat template '${template}'; there are ${names.join(', ')}.${didYouMean(template, names)}`);
    }
    if (tools !== undefined && this.#sources.has('tool_use')) return 'tool_use';
    if (this.#sources.has('default')) return 'default';
    if (first !== undefined && others.length === 0) return first;
    throw usageError(`this model's chat templates are ${names.join(', ')}, and none is the default; name one`);
  }

  #template(name: string): Template {
    return valueIn(this.#parsed, name, () => {
      const source = this.#sources.get(name) ?? '';
      if (source.length > MAX_LETTERS || source.split(/\S+/).some(({ length }) => length > MAX_BLANKS)) {
        throw formatError(
          `the chat template '${name}' has more than ${MAX_LETTERS} letters, or ${MAX_BLANKS} blanks in a row: is it a template?`,
        );
      }
      try {
        return new Template(source);
      } catch (cause) {
        throw formatError(`the chat template '${name}' can't be parsed: ${(cause as Error).message}`, cause);
      }
    });
  }
}

function readSources(chatTemplate: unknown, file: string): Map<string, string> {
  if (chatTemplate == null) return new Map();
  if (typeof chatTemplate === 'string') return new Map([['default', chatTemplate]]);
  const entries = Array.isArray(chatTemplate) ? chatTemplate : [chatTemplate];
  return new Map(
    entries.map((entry): [string, string] => {
      if (isObject(entry) && typeof entry.name === 'string' && typeof entry.template === 'string') {
        return [entry.name, entry.template];
      }
      throw formatError(`${file}: chat_template must be text, or a list of {name, template}`);
    }),
  );
}

/** @throws SplitkvError `usage` for what are no messages */
function checkMessages(messages: readonly ChatMessage[]): void {
  if (!Array.isArray(messages) || messages.length === 0)
    throw usageError('messages is empty; give at least one message');
  messages.forEach((message: unknown, i) => {
    if (!isObject(message) || typeof message.role !== 'string') {
      throw usageError(`messages[${i}] has no role; expected {role: 'user', content: '...'}`);
    }
    const { content } = message;
    if (content != null && typeof content !== 'string' && !Array.isArray(content)) {
      throw usageError(`messages[${i}].content is ${typeof content}; expected text`);
    }
  });
}
